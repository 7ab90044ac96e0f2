import { limits } from '../../domain/limits.ts';
import type { ListWorkers } from '../../domain/requests/stats.ts';
import type { ConnectionKind, Worker, WorkerServer } from '../../domain/workers/worker.ts';
import type { WorkerRecord } from '../../store/schema/worker-entities.ts';
import { type HeldJobs, heldByWorkers, pageOfWorkers, readWorkers } from '../../store/sql/workers/workers.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import type { Page } from '../jobs/job-queries.ts';
import type { WorkerDirectory } from './worker-directory.ts';

/** Lists the workers that any server on the database knows, and those that hold jobs. */
export class WorkerQueries {
  readonly #context: EngineContext;
  readonly #directory: WorkerDirectory;

  constructor(context: EngineContext, directory: WorkerDirectory) {
    this.#context = context;
    this.#directory = directory;
  }

  async list(command: ListWorkers, { signal }: Caller): Promise<Page<Worker>> {
    const { database } = this.#context;
    const limit = command.limit ?? limits.pageRowsDefault;
    // Ensures that a worker that has just called this server is in the answer.
    await this.#directory.flush();
    const filter = {
      workerId: command.worker_id ?? null,
      stream: command.stream ?? null,
      jobType: command.job_type ?? null,
      cursor: command.cursor || null,
      limit: limit + 1,
    };
    const found = await pageOfWorkers(database, filter, signal);
    const ids = found.slice(0, limit);
    const rows = await readWorkers(database, ids);
    const held = await heldByWorkers(database, ids, limits.workerJobsCounted, signal);
    // A worker may have gone between the two reads; it then holds nothing and no server knows it.
    const items = ids
      .map((workerId) => workerOf(workerId, rows.get(workerId) ?? [], held.get(workerId)))
      .filter(({ servers, activeLeases, claims }) => servers.length + activeLeases + claims > 0);
    return { items, nextCursor: found.length > limit ? (ids.at(-1) ?? null) : null };
  }
}

function workerOf(workerId: string, rows: readonly WorkerRecord[], held: HeldJobs | undefined): Worker {
  const servers = rows.map(serverOf);
  const heard = [held?.lastHeardAtMs ?? null, ...servers.map(({ lastHeardAtMs }) => lastHeardAtMs)];
  const times = heard.filter((ms) => ms !== null);
  return {
    workerId,
    lastHeardAtMs: times.length === 0 ? null : Math.max(...times),
    activeLeases: held?.activeLeases ?? 0,
    claims: held?.claims ?? 0,
    servers,
  };
}

const serverOf = (row: WorkerRecord): WorkerServer => ({
  serverId: row.server_id,
  host: row.server_host,
  pid: row.server_pid,
  peer: row.peer,
  connections: connectionsOf(row),
  sinceMs: row.since.getTime(),
  lastHeardAtMs: row.last_heard_at.getTime(),
  slots: row.asks.reduce((sum, { jobs }) => sum + jobs, 0),
  asks: row.asks,
  asksCut: row.asks_cut,
});

function connectionsOf(row: WorkerRecord): ConnectionKind[] {
  const open: ConnectionKind[] = [];
  if (row.work_streams > 0) open.push('WORK_STREAM');
  if (row.heartbeat_streams > 0) open.push('HEARTBEAT_STREAM');
  if (row.waiting_calls > 0) open.push('WAITING');
  return open.length > 0 ? open : ['POLLING'];
}
