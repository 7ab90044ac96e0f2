import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { atEnd, forgetProcess, temporaryFolder, watchProcess } from '../support/cleanup.ts';
import { findOnPath } from '../support/find-postgres.ts';
import { freePort } from '../support/free-port.ts';

const startLimitMs = 20_000;
const pollMs = 50;

/** An etcd of its own in a temporary folder, with its defaults: running from the moment `start` resolves until `stop`. */
export class EtcdServer {
  readonly address: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, address: string) {
    this.#child = child;
    this.address = address;
  }

  /** Undefined where there is none on the PATH. */
  static async start(): Promise<EtcdServer | undefined> {
    const program = findOnPath('etcd');
    if (program === undefined) return undefined;
    const folder = await temporaryFolder('etcd');
    const [port, peerPort] = [await freePort(), await freePort()];
    const [client, peer] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${peerPort}`];
    const settings = {
      name: 'bench',
      'data-dir': join(folder, 'data'),
      'listen-client-urls': client,
      'advertise-client-urls': client,
      'listen-peer-urls': peer,
      'initial-advertise-peer-urls': peer,
      'initial-cluster': `bench=${peer}`,
    };
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
    const child = spawn(program, args, { stdio: 'ignore', detached: true });
    await once(child, 'spawn');
    await watchProcess(child.pid as number);
    const server = new EtcdServer(child, `127.0.0.1:${port}`);
    atEnd(() => server.stop());
    await isListening(port);
    return server;
  }

  get pid(): number {
    return this.#child.pid as number;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exit;
    await forgetProcess(this.pid);
  }
}

async function isListening(port: number): Promise<void> {
  const deadline = performance.now() + startLimitMs;
  while (!(await answers(port))) {
    if (performance.now() > deadline) throw new Error(`etcd did not start within ${startLimitMs} ms`);
    await delay(pollMs);
  }
}

const answers = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port });
    const settle = (isThere: boolean) => {
      socket.destroy();
      resolve(isThere);
    };
    socket.once('connect', () => settle(true));
    socket.once('error', () => settle(false));
  });
