import type { WorkerRequest } from './worker.ts';

/**
 * The jobs that a known worker asks for. A known worker is connected, waits, or has sent a request lately.
 */
export type KnownRequest = Omit<WorkerRequest, 'jobs'>;

/** The properties of a job that decide whether it matches a request. */
export interface JobNeeds {
  /** Null for jobs without a stream. */
  stream: string | null;
  addonId: string;
  jobType: string;
  costUnits: number;
  requires: readonly string[];
  heavy: readonly string[];
}

/** Whether a request names jobs like this one. A request whose names were cut may name any job. */
export const namesJob = (ask: KnownRequest, { stream, jobType, addonId, costUnits }: JobNeeds): boolean =>
  ask.isCut ||
  ((stream === null ? ask.streams === null : (ask.streams?.includes(stream) ?? false)) &&
    (ask.addonId === null || ask.addonId === addonId) &&
    (ask.jobTypes?.includes(jobType) ?? true) &&
    (ask.maxCostUnits === null || costUnits <= ask.maxCostUnits));

/** Whether the worker of a request has what the job requires, and does not refuse it. */
export const canRun = (ask: KnownRequest, { requires, heavy }: JobNeeds): boolean =>
  ask.isCut ||
  (requires.every((name) => ask.available.includes(name)) &&
    !heavy.some((name) => ask.refused.includes(name)));

/** Whether the worker of a request may be granted the job. */
export const suits = (ask: KnownRequest, job: JobNeeds): boolean => namesJob(ask, job) && canRun(ask, job);

/**
 * The demand for a job among known workers: one may take it, the workers that ask for it cannot run it, or
 * none asks.
 */
export type Demand = 'suits' | 'cannot_run' | 'none';

export function demandFor(asks: readonly KnownRequest[], job: JobNeeds): Demand {
  const naming = asks.filter((ask) => namesJob(ask, job));
  if (naming.length === 0) return 'none';
  return naming.some((ask) => canRun(ask, job)) ? 'suits' : 'cannot_run';
}
