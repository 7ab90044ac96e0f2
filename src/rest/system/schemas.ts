/**
 * Jobs and leases with the field names of the request and heartbeat contracts, and Leasehold's additional
 * fields.
 */
import Type, { type Static, type TSchema, type TUnsafe } from 'typebox';
import { type Job, jobFields, type Priority, priorities } from '../../domain/jobs/job.ts';
import {
  type JobBody,
  type JobField,
  type JobFieldName,
  jobFieldList,
} from '../../domain/jobs/job-fields.ts';
import type { State } from '../../domain/jobs/state-machine.ts';
import type { Lease, LeaseOutcome } from '../../domain/leases/lease.ts';
import { iso } from '../../domain/time.ts';
import { objectMapper } from '../../lib/object-mapper.ts';
import { JobIntent, jobConverters } from '../jobs/schemas.ts';
import { heartbeatWithinMs, LeaseRecord, leaseToken } from '../leases/schemas.ts';
import { always, count, entity, flag, oneOf, time, word } from '../openapi/schema-types.ts';

/** The states that the contract names. */
const words = ['queued', 'leased', 'running', 'completed', 'failed', 'canceled', 'expired'] as const;

/** Claims belong to the queue contract; in this contract a claimed job has no lease yet. */
const stateWords: Record<State, (typeof words)[number]> = {
  QUEUED: 'queued',
  CLAIMED: 'queued',
  PREPARING: 'queued',
  LEASE_PENDING: 'queued',
  LEASED: 'leased',
  RUNNING: 'running',
  DONE: 'completed',
  FAILED: 'failed',
  CANCELED: 'canceled',
  TIMEOUT: 'expired',
};

type SystemPriority = Lowercase<Priority>;

/** Fields that the contract calls differently. */
const otherNames = {
  job_type: 'type',
  cost_units: 'requested_units',
  client_request_id: 'idempotency_key',
} as const satisfies Partial<Record<JobFieldName, string>>;
type OtherNames = typeof otherNames;

/** Claims and dead letters belong to other contracts. */
const notShown = ['claimed_by', 'claim_expires_at', 'dead_lettered'] as const;

/** The contract's own fields, and those that it showed first, in their order. Further fields follow. */
const firstFields: readonly JobFieldName[] = [
  'job_id',
  'job_type',
  'priority',
  'cost_units',
  'unique',
  'state',
  'payload',
  'client_request_id',
  'tags',
  'max_runtime_s',
  'lease_id',
  'created_at',
  'updated_at',
  'addon_id',
  'constraints',
  'stream',
  'attempts',
  'max_attempts',
  'retry_backoff_s',
  'run_at',
  'next_retry_at',
];

type ShownName = Exclude<JobFieldName, (typeof notShown)[number]>;
type SystemFieldName<Name extends ShownName> = Name extends keyof OtherNames ? OtherNames[Name] : Name;
type SystemValues = Omit<JobBody, 'priority' | 'state'> & {
  priority: SystemPriority;
  state: (typeof words)[number];
};

/** A job in JSON, with the field names of the request contract. */
export type SystemJobBody = { [Name in ShownName as SystemFieldName<Name>]: SystemValues[Name] };

/** The fields of this contract, with the name that the contract uses. */
export const systemFields = [
  ...firstFields,
  ...jobFieldList.map(({ name }) => name).filter((name) => !firstFields.includes(name)),
]
  .filter((name) => !notShown.some((hidden) => hidden === name))
  .map((name) => ({
    ...(jobFields[name] as JobField),
    name,
    shownAs: (otherNames as Partial<Record<JobFieldName, string>>)[name] ?? name,
  }));

const ownSchemas: Partial<Record<JobFieldName, TSchema>> = {
  priority: oneOf(
    priorities.map((word) => word.toLowerCase() as SystemPriority),
    'Which jobs go first.',
  ),
  state: oneOf(words, 'Where it is on its way.'),
};

export const SystemJobRecord = entity(
  'SystemJob',
  "A job, in the request contract's words.",
  Object.fromEntries(
    systemFields.map(({ name, shownAs }) => [shownAs, ownSchemas[name] ?? JobIntent.properties[name]]),
  ) as unknown as { [Name in keyof SystemJobBody]: TUnsafe<SystemJobBody[Name]> },
);

const systemConverters = {
  ...jobConverters,
  priority: (priority: Priority) => priority.toLowerCase(),
  state: (state: State) => stateWords[state],
};

export const systemJob = objectMapper<Job, SystemJobBody>(
  Object.fromEntries(
    systemFields.map(({ shownAs, property, kind }) => [
      shownAs,
      { from: property, convert: systemConverters[kind] },
    ]),
  ),
);

const record = LeaseRecord.properties;
const SystemLease = entity('SystemLease', "A lease, in the request contract's words.", {
  lease_id: record.lease_id,
  job_id: record.job_id,
  worker_id: record.worker_id,
  capacity_units: record.cost_units,
  issued_at: record.granted_at,
  expires_at: record.expires_at,
  last_heartbeat: record.last_heartbeat_at,
  fence: record.fence,
  attempt: record.attempt,
  lease_token: leaseToken,
});

const systemLease = (lease: Lease, token: string): Static<typeof SystemLease> => ({
  lease_id: lease.leaseId,
  job_id: lease.jobId,
  worker_id: lease.workerId,
  capacity_units: lease.costUnits,
  issued_at: iso(lease.grantedAtMs),
  expires_at: iso(lease.expiresAtMs),
  last_heartbeat: iso(lease.lastHeartbeatAtMs),
  fence: Number(lease.fence),
  attempt: lease.attempt,
  lease_token: token,
});

export const WorkAnswer = Type.Union([
  entity('WorkGranted', 'The next job, with its lease.', {
    denied: always(false, 'It is granted.'),
    lease: SystemLease,
    job: SystemJobRecord,
    heartbeat_within_ms: heartbeatWithinMs,
  }),
  entity('WorkDenied', 'There is no job, or no room for it.', {
    denied: always(true, 'It is denied.'),
    reason: word('Why.'),
    retry_after_ms: count('When it is worth asking again.'),
  }),
]);

export function workAnswer(outcome: LeaseOutcome): Static<typeof WorkAnswer> {
  if (outcome.kind === 'denied') {
    return { denied: true, reason: outcome.reason, retry_after_ms: Math.ceil(outcome.retryAfterMs) };
  }
  const { lease, token, job } = outcome;
  return {
    denied: false,
    lease: systemLease(lease, token),
    job: systemJob(job),
    heartbeat_within_ms: outcome.heartbeatWithinMs,
  };
}

export const Extended = entity('LeaseExtended', 'The lease is kept.', {
  ok: always(true, 'It is kept.'),
  expires_at: time('When it expires without another heartbeat.'),
  ttl_remaining_ms: count('How long that is from now.'),
  cancel_requested: flag('A client asked to cancel the job: stop, and end the lease.'),
  drain: flag('The server is shutting down: ask another one for more work.'),
});
