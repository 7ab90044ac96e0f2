/** When a connection is old, and how long its calls may go on after that. */

/** A tenth of the age to either side, so that connections that began together do not end together. */
const jitter = 0.1;

/** What an old connection may take, in milliseconds. */
export interface AgeTimes {
  /** How long a stream that was asked to leave may stay, before it is ended. */
  leaveMs: number;
  /**
   * How long the connection may stay: longer than any call may wait, and than streams may take to leave.
   */
  graceMs: number;
}

export const ageTimes: AgeTimes = { leaveMs: 30_000, graceMs: 75_000 };

/** The age at which one connection ends, in milliseconds; undefined if it never does. */
export const ageOf = (ageS: number): number | undefined =>
  ageS === 0 ? undefined : ageS * 1_000 * (1 - jitter + 2 * jitter * Math.random());
