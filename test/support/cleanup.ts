/**
 * What a test run leaves outside its own process, and its certain end.
 *
 * Folders and server processes are declared here as they are made. `cleanUp()` ends them in an orderly way at the end
 * of the run. If the run never gets there (an exception, Ctrl-C, SIGTERM, even SIGKILL), a guard does it: a shell in a
 * session of its own that waits for its standard input to close, which the kernel does for us however we die. It then
 * kills the processes it was told of and removes the folder. Nothing here keeps the event loop alive.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const guardScript = `
trap '' INT TERM HUP
watched=
while read -r verb pid; do
  others=
  for other in $watched; do [ "$other" = "$pid" ] || others="$others $other"; done
  case $verb in
    watch) watched="$others $pid" ;;
    forget) watched=$others ;;
  esac
done
for pid in $watched; do kill -s QUIT "$pid"; done
tries=0
for pid in $watched; do
  while kill -0 "$pid" && [ "$tries" -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
  kill -s KILL "$pid"
done
rm -rf -- "$1"
`;

interface Run {
  folder: string;
  guard: ChildProcess;
}

let run: Promise<Run> | undefined;
let folders = 0;
const endings: (() => Promise<void>)[] = [];

async function begin(): Promise<Run> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-test-'));
  // Servers may run as another user than the tests, and must be able to pass through to their own folder.
  await chmod(folder, 0o711);
  const guard = spawn('sh', ['-c', guardScript, 'leasehold-test-guard', folder], {
    detached: true,
    cwd: tmpdir(),
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  // Without a shell there is no guard; an orderly end still removes everything.
  guard.on('error', () => {});
  guard.stdin?.on('error', () => {});
  guard.unref();
  (guard.stdin as Socket | null)?.unref();
  return { folder, guard };
}

function currentRun(): Promise<Run> {
  run ??= begin();
  return run;
}

/** A new, empty folder that is gone when the run is over, however the run ends. */
export async function temporaryFolder(name: string): Promise<string> {
  // Counted before the wait, in which others may ask for theirs.
  const number = ++folders;
  const folder = join((await currentRun()).folder, `${name}-${number}`);
  await mkdir(folder);
  return folder;
}

/** Has a process killed should this one die before `forgetProcess` is called for it. */
export async function watchProcess(pid: number): Promise<void> {
  (await currentRun()).guard.stdin?.write(`watch ${pid}\n`);
}

export async function forgetProcess(pid: number): Promise<void> {
  (await run)?.guard.stdin?.write(`forget ${pid}\n`);
}

/** Registers what must be closed when the run is over; what was registered last is closed first. */
export function atEnd(ending: () => Promise<void>): void {
  endings.push(ending);
}

/** Ends everything that was declared, going on past failures, and returns those. May be called again. */
export async function cleanUp(): Promise<Error[]> {
  const failures: Error[] = [];
  for (let ending = endings.pop(); ending; ending = endings.pop()) {
    await ending().catch((error) => failures.push(error));
  }
  if (run) {
    const { folder, guard } = await run;
    run = undefined;
    await rm(folder, { recursive: true, force: true, maxRetries: 5 }).catch((error) => failures.push(error));
    guard.stdin?.end();
  }
  return failures;
}
