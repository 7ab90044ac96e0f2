/** What servers know of the workers that are connected to them, wait for jobs or poll. */
import type { JsonObject } from '../jobs/job.ts';
import { limits } from '../limits.ts';

/** The jobs that a worker asks for. With `isCut`, its lists may have had more names than are kept. */
export interface WorkerRequest {
  /** Null for jobs without a stream. */
  streams: readonly string[] | null;
  addonId: string | null;
  /** Null for all types. */
  jobTypes: readonly string[] | null;
  maxCostUnits: number | null;
  available: readonly string[];
  refused: readonly string[];
  /**
   * Jobs that the worker would take now: the credit of a stream, or one for each waiting call. 0 for a call
   * that has ended.
   */
  jobs: number;
  isCut: boolean;
}

export const connectionKinds = ['WORK_STREAM', 'HEARTBEAT_STREAM', 'WAITING', 'POLLING'] as const;
export type ConnectionKind = (typeof connectionKinds)[number];

/** A worker as one server knows it. */
export interface WorkerServer {
  serverId: string;
  host: string;
  pid: number;
  /** The address of the worker's last call or stream. */
  peer: string;
  connections: ConnectionKind[];
  sinceMs: number;
  lastHeardAtMs: number;
  /** Jobs that the worker would take now, over all its requests. */
  slots: number;
  asks: WorkerRequest[];
  /** The worker asks for more request classes than are kept. */
  asksCut: boolean;
}

export interface Worker {
  workerId: string;
  /** The latest heartbeat, call or frame of the worker. */
  lastHeardAtMs: number | null;
  activeLeases: number;
  claims: number;
  /** Empty where the worker holds jobs and no server has received anything from it for `workerGoneMs`. */
  servers: WorkerServer[];
}

/** The shortest time between two writes of a worker's row while only times change. */
export const workerRefreshMs = 10_000;
/**
 * A worker without a connection is removed when it has sent nothing for this long. The workers of a server
 * that died are removed after the same time.
 */
export const workerGoneMs = 30_000;

/** The part of a request that is kept: its names together have at most `limits.workerAskChars` characters. */
export function storedRequest({
  isCut = false,
  ...ask
}: Omit<WorkerRequest, 'isCut'> & { isCut?: boolean }): WorkerRequest {
  let left: number = limits.workerAskChars;
  const cut = (names: readonly string[]): readonly string[] => {
    const kept: string[] = [];
    for (const name of names) {
      left -= name.length;
      if (left < 0) {
        isCut = true;
        break;
      }
      kept.push(name);
    }
    return kept;
  };
  const streams = ask.streams && cut(ask.streams);
  const jobTypes = ask.jobTypes && cut(ask.jobTypes);
  return { ...ask, streams, jobTypes, available: cut(ask.available), refused: cut(ask.refused), isCut };
}

/** The capabilities with the keys that a worker sends. */
export const capabilitiesOf = ({
  available,
  refused,
}: Pick<WorkerRequest, 'available' | 'refused'>): JsonObject =>
  Object.fromEntries([
    ...available.map((name) => [`${name}_available`, true] as const),
    ...refused.map((name) => [`${name}_heavy`, false] as const),
  ]);
