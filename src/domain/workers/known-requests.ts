import type { WorkerRequest } from './worker.ts';

/** Which jobs a known worker asks for: one that is connected, waits, or has asked lately. */
export type KnownRequest = Omit<WorkerRequest, 'jobs'>;

/** What of a job decides whether an ask suits it. */
export interface JobNeeds {
  /** Null for jobs without a stream. */
  stream: string | null;
  addonId: string;
  jobType: string;
  costUnits: number;
  requires: readonly string[];
  heavy: readonly string[];
}

/** Whether an ask names jobs like this one. An ask whose names were cut may name any job. */
export const namesJob = (ask: KnownRequest, { stream, jobType, addonId, costUnits }: JobNeeds): boolean =>
  ask.isCut ||
  ((stream === null ? ask.streams === null : (ask.streams?.includes(stream) ?? false)) &&
    (ask.addonId === null || ask.addonId === addonId) &&
    (ask.jobTypes?.includes(jobType) ?? true) &&
    (ask.maxCostUnits === null || costUnits <= ask.maxCostUnits));

/** Whether a worker that asks so has what the job requires, and does not refuse it. */
export const canRun = (ask: KnownRequest, { requires, heavy }: JobNeeds): boolean =>
  ask.isCut ||
  (requires.every((name) => ask.available.includes(name)) &&
    !heavy.some((name) => ask.refused.includes(name)));

/** Whether a worker that asks so may be given the job. */
export const suits = (ask: KnownRequest, job: JobNeeds): boolean => namesJob(ask, job) && canRun(ask, job);

/** What known workers would do with a job: one may take it, those that ask for it cannot run it, or none asks for it. */
export type Demand = 'suits' | 'cannot_run' | 'none';

export function demandFor(asks: readonly KnownRequest[], job: JobNeeds): Demand {
  const naming = asks.filter((ask) => namesJob(ask, job));
  if (naming.length === 0) return 'none';
  return naming.some((ask) => canRun(ask, job)) ? 'suits' : 'cannot_run';
}
