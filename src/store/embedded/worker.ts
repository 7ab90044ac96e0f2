import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { PGlite } from '@electric-sql/pglite';
import { prepareDataDirectory } from './data-directory.ts';
import { Housekeeping, WAL_SETTINGS } from './housekeeping.ts';
import type { FromWorker, ToWorker, WorkerSettings } from './messages.ts';
import { type Backend, SessionQueue } from './session-queue.ts';
import { startupMessage } from './wire.ts';

/**
 * The worker thread: runs PostgreSQL, so that a slow statement delays only callers of the database.
 *
 * It starts at once, posts 'ready' when sessions may connect, and answers bytes with bytes. On 'close' it
 * runs what it has received, rolls back what is open, shuts PostgreSQL down and posts 'closed'. An unexpected
 * error ends the thread: the other side then fails everything that waits, and committed data is on disk.
 */

/**
 * PGlite's default parameters disable fsync. A killed process does not notice: the kernel already has its
 * writes. Full page writes and synchronous commit stay on, because a kill can tear a page between two pages
 * of memory and loses what the kernel does not have yet. Disabling them gained nothing measurable.
 */
const START_PARAMETERS = [
  ...PGlite.defaultStartParams,
  ...settings('timezone=UTC', 'jit=off', ...WAL_SETTINGS),
];

function settings(...assignments: string[]): string[] {
  return assignments.flatMap((assignment) => ['-c', assignment]);
}

async function start(port: MessagePort, { dir, sessionSql }: WorkerSettings): Promise<void> {
  const database = await PGlite.create(await prepareDataDirectory(dir), {
    startParams: START_PARAMETERS,
  });
  for (const sql of sessionSql) await database.exec(sql);
  const backend = backendOf(database);
  const greeting = await backend.run(startupMessage({ user: 'postgres', database: 'postgres' }));
  const answer = (session: number, bytes: Uint8Array<ArrayBuffer>) =>
    post(port, { kind: 'bytes', session, bytes }, [bytes.buffer]);
  const queue = new SessionQueue({ backend, greeting, answer });
  const housekeeping = new Housekeeping(database, queue);
  port.on('message', (message: ToWorker) => {
    if (message.kind === 'bytes') queue.receive(message.session, message.bytes);
    else if (message.kind === 'end') queue.end(message.session);
    else void close(port, database, queue, housekeeping);
  });
  housekeeping.start();
  post(port, { kind: 'ready' });
}

async function close(
  port: MessagePort,
  database: PGlite,
  queue: SessionQueue,
  housekeeping: Housekeeping,
): Promise<void> {
  housekeeping.stop();
  await queue.settle();
  await database.close();
  post(port, { kind: 'closed' });
}

/**
 * PGlite's own `query` makes six calls into PostgreSQL for one statement; a whole batch of messages is one
 * call.
 */
function backendOf(database: PGlite): Backend {
  return {
    async run(messages) {
      const parts: Uint8Array[] = [];
      // Each part is a view of PostgreSQL's memory, which the next part overwrites.
      const onRawData = (part: Uint8Array) => void parts.push(part.slice());
      await database.execProtocolRawStream(messages, { syncToFs: false, onRawData });
      const answer = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
      let at = 0;
      for (const part of parts) {
        answer.set(part, at);
        at += part.length;
      }
      return answer;
    },
  };
}

function post(port: MessagePort, message: FromWorker, transfer: ArrayBuffer[] = []): void {
  port.postMessage(message, transfer);
}

if (!parentPort)
  throw new Error('This file is the embedded database’s worker thread and is not started by itself.');
await start(parentPort, workerData as WorkerSettings);
