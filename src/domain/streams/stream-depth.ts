/** A stream and how much is in it. */
export interface StreamDepth {
  stream: string;
  /** May be taken now. */
  queued: number;
  /** Wait for a backoff, a time to start, or more capacity. */
  delayed: number;
  /** Leased. */
  running: number;
  deadLettered: number;
}
