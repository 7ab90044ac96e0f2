/** Outcomes of jobs, counted after the commit by the server that committed them. */
import { isTerminal, type State, states } from '../domain/jobs/state-machine.ts';
import type { Counter, Histogram, Registry } from './registry.ts';

/** Bounds for the times that jobs wait and run, from 5 ms to a day. */
const jobBounds = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400,
];

/** How jobs ended. */
export interface EndCounts {
  readonly ends: ReadonlyMap<State, number>;
  readonly deadLetters?: number;
  /** How long leases lasted, released or expired. */
  readonly runMs?: readonly number[];
}

/** The effects of one transaction on jobs, gathered before its commit and counted after it. */
export class JobCounts implements EndCounts {
  readonly ends = new Map<State, number>();
  deadLetters = 0;
  readonly runMs: number[] = [];

  ended(to: State): void {
    this.ends.set(to, (this.ends.get(to) ?? 0) + 1);
  }
}

export class JobMeter {
  readonly submitted: Counter;
  readonly #ended: ReadonlyMap<State, Counter>;
  readonly #deadLetters: Counter;
  readonly #wait: Histogram;
  readonly #run: Histogram;

  constructor(registry: Registry) {
    this.submitted = registry
      .counters('leasehold_jobs_submitted_total', 'Jobs that this server has submitted.')
      .of();
    const ended = registry.counters(
      'leasehold_jobs_total',
      'Jobs that this server has ended, by outcome: done, failed, canceled, timeout.',
      'outcome',
    );
    this.#ended = new Map(
      states.filter(isTerminal).map((state) => [state, ended.of(state.toLowerCase())] as const),
    );
    this.#deadLetters = registry
      .counters('leasehold_dead_letters_total', 'Jobs of streams that this server has given up.')
      .of();
    this.#wait = registry
      .histograms(
        'leasehold_job_wait_seconds',
        'Time from when a job could be leased (submitted, run_at or the end of its backoff) to its lease, in seconds.',
        jobBounds,
      )
      .of();
    this.#run = registry
      .histograms(
        'leasehold_job_run_seconds',
        'Time from the grant of a lease to its end, released or expired, in seconds.',
        jobBounds,
      )
      .of();
  }

  /**
   * Counts a grant to a job that waited `waitMs`. Null means that the time is unknown or the grant was
   * answered before.
   */
  granted(waitMs: number | null): void {
    if (waitMs !== null) this.#wait.observe(Math.max(waitMs, 0) / 1000);
  }

  ended({ ends, deadLetters = 0, runMs = [] }: EndCounts): void {
    for (const [state, count] of ends) this.#ended.get(state)?.add(count);
    this.#deadLetters.add(deadLetters);
    for (const ms of runMs) this.#run.observe(Math.max(ms, 0) / 1000);
  }
}
