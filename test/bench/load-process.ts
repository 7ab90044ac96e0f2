import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { atEnd, forgetProcess, watchProcess } from '../support/cleanup.ts';
import type { Tasks } from './load/tasks.ts';

type Answer<Task extends keyof Tasks> = Awaited<ReturnType<Tasks[Task]>>;
type Reply = { answer?: unknown; error?: string };

/** A process of its own that makes load, so that neither the server nor what is measured here shares its event loop. */
export class LoadProcess {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** That of another tree is another file. */
  static async start(file = new URL('./load/main.ts', import.meta.url)): Promise<LoadProcess> {
    const child = fork(file, { execArgv: [] });
    await once(child, 'spawn');
    const load = new LoadProcess(child);
    await watchProcess(child.pid as number);
    atEnd(() => load.stop());
    return load;
  }

  /** One task at a time. */
  async run<Task extends keyof Tasks>(
    task: Task,
    ...[argument]: Parameters<Tasks[Task]>
  ): Promise<Answer<Task>> {
    const over = new AbortController();
    try {
      const reply = once(this.#child, 'message', { signal: over.signal });
      const exit = once(this.#child, 'exit', { signal: over.signal }).then(([code, signal]) => {
        throw new Error(`the load process ended (${signal ?? code})`);
      });
      this.#child.send({ task, argument });
      const [{ answer, error }] = (await Promise.race([reply, exit])) as [Reply];
      if (error !== undefined) throw new Error(error);
      return answer as Answer<Task>;
    } finally {
      over.abort();
    }
  }

  async stop(): Promise<void> {
    const { pid } = this.#child;
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exit;
    await forgetProcess(pid as number);
  }
}
