import { localPrincipal } from '../../src/domain/access/principal.ts';
import type { Job } from '../../src/domain/jobs/job.ts';
import type { ClaimFilter } from '../../src/domain/queue/claim-filter.ts';
import type { SubmitJob } from '../../src/domain/requests/scheduler.ts';
import type { EngineSettings } from '../../src/engine/context/engine-context.ts';
import { Engine } from '../../src/engine/engine.ts';
import { type Draft, draft } from '../../src/engine/jobs/submitter.ts';
import { Services, type ServicesOptions } from '../../src/engine/services.ts';
import { createLog } from '../../src/lib/log.ts';
import { type Channel, noopChannel } from '../../src/store/connection/notify-channel.ts';
import type { Database } from '../../src/store/database.ts';
import { databaseTransport } from '../../src/transport/database-transport.ts';
import type { Transport } from '../../src/transport/transport.ts';

export const engineSettings: EngineSettings = {
  leaseTtlS: 60,
  heartbeatGraceS: 0,
  capacityTotal: 100,
  claimTtlS: 60,
  maxClaims: 3,
  maxAttempts: 1,
  streamMaxAttempts: 3,
  retentionJobsDays: 30,
  retentionEventsDays: 30,
  retentionSamplesDays: 30,
  retentionFilesDays: 30,
  rateSubmit: 0,
  rateRead: 0,
  rateBurstS: 10,
  retentionAuditDays: 365,
  authRefreshS: 1,
};

export const silentLog = createLog({ level: 'silent', human: false });

/** Any job that has no stream suits. */
export const anyJob: ClaimFilter = {
  streams: null,
  addonId: null,
  jobTypes: null,
  maxCostUnits: null,
  available: [],
  refused: [],
};

/** Whoever calls in a test, without a deadline. */
export const caller = { peer: 'the test', principal: localPrincipal };

/** An engine whose services a test can reach, to run a background task at a chosen time. */
export class TestedEngine extends Engine {
  readonly services: Services;

  constructor(options: Omit<ServicesOptions, 'isGuarded'>) {
    const services = new Services({ ...options, isGuarded: false });
    super(services);
    this.services = services;
  }
}

/** An engine on a database, not started: its services run when the test says so. */
export function engineOn(
  database: Database,
  settings = engineSettings,
  channel: Channel = noopChannel,
  transport: Transport = databaseTransport,
): TestedEngine {
  return new TestedEngine({ database, channel, transport, settings, log: silentLog });
}

/** Submits jobs one after the other, so that their order is known. */
export async function submitted(engine: Engine, ...commands: Partial<SubmitJob>[]): Promise<Job[]> {
  const jobs: Job[] = [];
  for (const command of commands) {
    const one = draft({ addon_id: 'a', job_type: 't', cost_units: 1, ...command }, false, engine.settings);
    jobs.push((await engine.jobs.submit(one, caller)).job);
  }
  return jobs;
}

/** Submits jobs as one batch and answers with their ids, in the order given. */
export async function submittedIds(engine: Engine, drafts: readonly Draft[]): Promise<string[]> {
  const outcomes = await engine.jobs.submitMany(drafts, caller);
  return outcomes.map((outcome) => {
    if (outcome instanceof Error) throw outcome;
    return outcome.jobId;
  });
}

/** Makes every claim, every lease and every waiting time a given time older, as if that time had passed. */
export async function letTimePass(database: Database, ms: number): Promise<void> {
  await database.query(
    `update live_jobs set ${[
      'check_at',
      'claim_expires_at',
      'started_at',
      'last_heartbeat_at',
      'expires_at',
      'lease_ends_at',
      'longest_silence_since',
    ]
      .map((column) => `${column} = ${column} - $1::float8 * interval '1 ms'`)
      .join(', ')}`,
    [ms],
  );
  // The servers were alive all the while.
  await database.query('update pulse set alive_at = clock_timestamp()', []);
}
