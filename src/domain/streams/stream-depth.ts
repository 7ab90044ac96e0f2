/** A stream and the number of its jobs. */
export interface StreamDepth {
  stream: string;
  /** Jobs that may be leased now. */
  queued: number;
  /** Jobs that wait for a backoff, a start time, or more capacity. */
  delayed: number;
  /** Leased jobs. */
  running: number;
  deadLettered: number;
}
