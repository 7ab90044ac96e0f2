import type { Job } from '../jobs/job.ts';
import type { State } from '../jobs/state-machine.ts';
import type { LeaseState } from '../leases/lease.ts';
import { type Attempt, aheadMax, type Cause, type CauseCode } from './facts.ts';
import { counted, countedTo } from './text.ts';

const jobWords: Readonly<Record<State, string>> = {
  QUEUED: 'Waiting',
  CLAIMED: 'Claimed',
  PREPARING: 'Preparing',
  LEASE_PENDING: 'Waiting for a lease',
  LEASED: 'Leased',
  RUNNING: 'Running',
  DONE: 'Done',
  FAILED: 'Failed',
  CANCELED: 'Canceled',
  TIMEOUT: 'Timed out',
};

const leaseWords: Readonly<Record<LeaseState, string>> = {
  ACTIVE: 'Active',
  EXPIRED: 'Expired',
  RELEASED: 'Released',
};

/** `Waiting: needs 30 units, 12 are free; 3 jobs ahead`. */
export const jobSummary = (job: Pick<Job, 'state'>, causes: readonly Cause[]): string =>
  sentenceOf(jobWords[job.state], causes);

/** `Active: the last heartbeat of w was 3 s ago; without another heartbeat the lease expires in 57 s`. */
export const leaseSummary = ({ lease, causes }: Attempt): string =>
  sentenceOf(leaseWords[lease.state], causes.slice(0, 1));

function sentenceOf(head: string, [main, ...others]: readonly Cause[]): string {
  if (main === undefined) return head;
  const short = shortText(main);
  if (short === undefined) return `${head}: ${main.text}`;
  const also = others.flatMap((each) => shortText(each) ?? []);
  return `${head}: ${[short, ...also].join('; ')}`;
}

/** The causes that often hold together, in a few words. */
const short: Partial<Record<CauseCode, (facts: Cause['facts']) => string>> = {
  waiting_for_units: ({ cost_units, available, usable }) =>
    Number(cost_units) > Number(usable)
      ? `needs ${counted(Number(cost_units), 'unit')}, ${Number(usable).toLocaleString('en')} are usable`
      : `needs ${counted(Number(cost_units), 'unit')}, ${Number(available).toLocaleString('en')} are free`,
  tenant_quota: ({ cost_units, addon_id, max_units, used_units }) =>
    `needs ${counted(Number(cost_units), 'unit')}, ${addon_id} uses ${used_units} of its ${max_units}`,
  costs_more_than_total: ({ cost_units, total }) =>
    `needs ${counted(Number(cost_units), 'unit')}, the total is ${Number(total).toLocaleString('en')}`,
  waiting_in_line: ({ ahead, ahead_is_more }) =>
    `${countedTo(Number(ahead) + (ahead_is_more === true ? 1 : 0), aheadMax, 'job')} ahead`,
};

/** Undefined for a cause that has no short text, or no figures. */
const shortText = ({ code, facts }: Cause): string | undefined =>
  Object.keys(facts).length === 0 ? undefined : short[code]?.(facts);
