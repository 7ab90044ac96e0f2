/** What servers know of the workers that are connected to them, wait at them or ask them for work. */
import type { JsonObject } from '../jobs/job.ts';
import { limits } from '../limits.ts';

/** Which jobs a worker asks for. A list that was cut may have had more names than are kept. */
export interface WorkerRequest {
  /** Null for jobs without a stream. */
  streams: readonly string[] | null;
  addonId: string | null;
  /** Null for all types. */
  jobTypes: readonly string[] | null;
  maxCostUnits: number | null;
  available: readonly string[];
  refused: readonly string[];
  /** Jobs that it would take now: the credit of a stream, or one for each call that waits. 0 for a call that came and went. */
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
  /** Jobs that it would take now, of all that it asks for. */
  slots: number;
  asks: WorkerRequest[];
  /** It asks for more kinds of jobs than are kept. */
  asksCut: boolean;
}

export interface Worker {
  workerId: string;
  /** The latest heartbeat, call or frame. */
  lastHeardAtMs: number | null;
  activeLeases: number;
  claims: number;
  /** Empty where it holds jobs and no server has heard of it for `workerGoneMs`. */
  servers: WorkerServer[];
}

/** How often a row of a worker is written at the most while nothing but times changes. */
export const workerRefreshMs = 10_000;
/** A worker without a connection is gone when nothing was heard of it for this long; so are those of a server that died. */
export const workerGoneMs = 30_000;

/** What of an ask is kept: its names together have at most `limits.workerAskChars` characters. */
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

/** The capabilities in the words in which a worker sends them. */
export const capabilitiesOf = ({
  available,
  refused,
}: Pick<WorkerRequest, 'available' | 'refused'>): JsonObject =>
  Object.fromEntries([
    ...available.map((name) => [`${name}_available`, true] as const),
    ...refused.map((name) => [`${name}_heavy`, false] as const),
  ]);
