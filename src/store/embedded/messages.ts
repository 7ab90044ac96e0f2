/** Start options of the worker thread. */
export interface WorkerSettings {
  dir: string;
  /** Statements that run in order before the first connection is served. */
  sessionSql: readonly string[];
}

/** A session is one connection of the `pg` driver; its bytes are PostgreSQL's own protocol. */
export type ToWorker =
  | { kind: 'bytes'; session: number; bytes: Uint8Array<ArrayBuffer> }
  | { kind: 'end'; session: number }
  | { kind: 'close' };

export type FromWorker =
  | { kind: 'ready' }
  | { kind: 'bytes'; session: number; bytes: Uint8Array<ArrayBuffer> }
  | { kind: 'closed' };
