/**
 * The ledger of what a server has acknowledged, and its comparison with the database.
 *
 * A call is entered only after its answer has arrived. The database may hold more, because an answer can be
 * lost after its commit. It must never hold less, nor an incomplete write.
 */
import { eventNamed, stateNamed } from '../../src/domain/jobs/state-machine.ts';
import type { Database } from '../../src/store/database.ts';
import { allEvents } from '../support/history.ts';

/** One submission, distinguished from all others by its key. */
export interface Sent {
  key: string;
  jobType: string;
  costUnits: number;
  n: number;
}

export class Ledger {
  readonly submitted = new Map<string, Sent>();
  /** The worker of each job. */
  readonly claimed = new Map<string, string>();
  /** The note of each job. */
  readonly prepared = new Map<string, string>();
  /** The reason of each job. */
  readonly canceled = new Map<string, string>();
  /** Submissions that were sent, and neither answered nor refused. */
  readonly unanswered = new Map<string, Sent>();
  #sent = 0;

  get acknowledged(): number {
    return this.submitted.size + this.claimed.size + this.prepared.size + this.canceled.size;
  }

  /** A unique submission. It counts as unanswered until its answer is entered. */
  next(): Sent {
    const n = ++this.#sent;
    const sent = { key: `key-${n}`, jobType: `type-${n % 7}`, costUnits: (n % 5) + 1, n };
    this.unanswered.set(sent.key, sent);
    return sent;
  }

  enter(jobId: string, sent: Sent): void {
    this.unanswered.delete(sent.key);
    this.submitted.set(jobId, sent);
  }
}

interface Held {
  jobId: string;
  jobType: string;
  costUnits: number;
  key: string;
  n: number;
  liveState: number | null;
  endState: number | null;
  claimedBy: string | null;
  note: string | null;
}

interface Told {
  jobId: string;
  type: number;
  actor: string;
  note: string | null;
  reason: string | null;
}

const heldJobs = `
select job.job_id as "jobId", job.job_type as "jobType", job.cost_units as "costUnits",
  job.client_request_id as key, (job.payload ->> 'n')::int as n, live.state as "liveState",
  outcome.state as "endState", coalesce(live.claimed_by, outcome.claimed_by) as "claimedBy",
  coalesce(live.note, outcome.note) as note
from jobs job
left join live_jobs live on live.job_id = job.job_id
left join job_outcomes outcome on outcome.job_id = job.job_id`;

const toldEvents = `
select job_id as "jobId", type, actor, data ->> 'note' as note, data ->> 'reason' as reason
from ${allEvents} order by event_id`;

const orphanRows = `
select 'live row ' || job_id as what from live_jobs where job_id not in (select job_id from jobs)
union all select 'outcome ' || job_id from job_outcomes where job_id not in (select job_id from jobs)
union all select 'event of ' || job_id from job_events where job_id not in (select job_id from jobs)`;

/** A sentence for each violation; none if all data is right. */
export async function problemsIn(database: Database, ledger: Ledger): Promise<string[]> {
  const jobs = new Map((await database.query<Held>(heldJobs, [])).map((job) => [job.jobId, job]));
  const events = Map.groupBy(await database.query<Told>(toldEvents, []), ({ jobId }) => jobId);
  const orphans = await database.query<{ what: string }>(orphanRows, []);
  const of = (jobId: string, type: string) =>
    (events.get(jobId) ?? []).filter((event) => eventNamed(event.type) === type);
  const problems = orphans.map(({ what }) => `${what} without a job`);
  for (const job of jobs.values()) {
    problems.push(...problemsOfPlace(job, of(job.jobId, 'JOB_SUBMITTED').length));
  }
  for (const [jobId, sent] of ledger.submitted) problems.push(...problemsOfSubmission(jobId, sent, jobs));
  const check = (jobId: string, type: string, isRight: (event: Told, job: Held) => boolean) => {
    const job = jobs.get(jobId);
    const found = of(jobId, type);
    if (!job || found.length !== 1 || !isRight(found[0] as Told, job)) {
      problems.push(`${type} of ${jobId} was acknowledged; held: ${JSON.stringify({ job, found })}`);
    }
  };
  for (const [jobId, worker] of ledger.claimed) {
    check(jobId, 'JOB_CLAIMED', (event, job) => event.actor === worker && job.claimedBy === worker);
  }
  for (const [jobId, note] of ledger.prepared) {
    check(jobId, 'JOB_PREPARING', (event, job) => event.note === note && job.note === note);
  }
  for (const [jobId, reason] of ledger.canceled) {
    check(jobId, 'JOB_CANCELED', (event, job) => event.reason === reason && nameOf(job) === 'CANCELED');
  }
  return problems;
}

/** A state that the events do not lead to is an incomplete write. */
function problemsOfPlace(job: Held, submissions: number): string[] {
  const problems: string[] = [];
  if (submissions !== 1) problems.push(`job ${job.jobId} has ${submissions} JOB_SUBMITTED events`);
  if (job.liveState === null && job.endState === null) problems.push(`job ${job.jobId} is nowhere`);
  if (job.liveState !== null && job.endState !== null) problems.push(`job ${job.jobId} is in two places`);
  return problems;
}

function problemsOfSubmission(jobId: string, sent: Sent, jobs: ReadonlyMap<string, Held>): string[] {
  const job = jobs.get(jobId);
  if (!job) return [`job ${jobId} (${sent.key}) was acknowledged and is gone`];
  const { key, jobType, costUnits, n } = job;
  const same = JSON.stringify({ key, jobType, costUnits, n }) === JSON.stringify(sent);
  return same ? [] : [`job ${jobId} is ${JSON.stringify(job)}, and was sent as ${JSON.stringify(sent)}`];
}

const nameOf = ({ liveState, endState }: Held): string => stateNamed(endState ?? liveState ?? 0);
