import { limits } from '../limits.ts';
import type { JobField } from './job-fields.ts';
import type { EventType, State } from './state-machine.ts';

/** Any JSON, passed on as it was received. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** The priorities in the order in which they are served; the index is the number in the database. */
export const priorities = ['URGENT', 'HIGH', 'NORMAL', 'LOW'] as const;
export type Priority = (typeof priorities)[number];

export const finalStatuses = ['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT'] as const;
export type FinalStatus = (typeof finalStatuses)[number];

/** A job as all APIs show it. Times are milliseconds since 1970 by the database's clock. */
export interface Job {
  jobId: string;
  addonId: string;
  jobType: string;
  priority: Priority;
  costUnits: number;
  constraints: JsonObject;
  payload: JsonObject;
  state: State;
  createdAtMs: number;
  updatedAtMs: number;
  claimedBy: string | null;
  claimExpiresAtMs: number | null;
  leaseId: string | null;
  attempts: number;
  nextRetryAtMs: number | null;
  clientRequestId: string | null;
  stream: string | null;
  unique: boolean;
  tags: string[];
  maxRuntimeS: number | null;
  maxAttempts: number;
  retryBackoffS: number;
  runAtMs: number | null;
  cancelRequested: boolean;
  progress: number | null;
  note: string | null;
  /** Dead letter of its stream: it failed for good, or has no attempt left. */
  deadLettered: boolean;
}

/**
 * All fields of a job, by their names in requests and answers, in the order of the answers. REST schemas and
 * bodies, the schema of a submission, its defaults, the flags of the command line and the examples derive
 * from this table.
 */
export const jobFields = {
  job_id: {
    property: 'jobId',
    kind: 'uuid',
    description: 'Its id.',
    example: '0b7e6c9a-3f1d-4c6e-9a55-2f1f4a1f0c01',
  },
  addon_id: {
    property: 'addonId',
    kind: 'text',
    description: 'The application or tenant that submitted it.',
    example: 'visuals',
    submission: {
      isRequired: true,
      form: 'name',
      description:
        'The application or tenant that submits the job: claims, lists and figures can be limited to it.',
    },
  },
  job_type: {
    property: 'jobType',
    kind: 'text',
    description: 'The kind of work.',
    example: 'load30',
    submission: {
      isRequired: true,
      form: 'name',
      description: 'The kind of work, such as `render_image`. Workers choose jobs by it.',
    },
  },
  priority: {
    property: 'priority',
    kind: 'priority',
    description: 'Which jobs go first.',
    example: 'NORMAL',
    submission: { default: 'NORMAL' },
  },
  cost_units: {
    property: 'costUnits',
    kind: 'whole',
    description: 'Units of capacity that its lease uses.',
    example: 30,
    submission: {
      isRequired: true,
      minimum: 1,
      maximum: limits.costUnits,
      description: 'Units of capacity that its lease uses. The usable units bound how much runs at once.',
    },
  },
  constraints: {
    property: 'constraints',
    kind: 'constraints',
    description: 'What its worker must have: `x_required`, `x_heavy`.',
    example: { cpu_heavy: true },
    submission: {
      default: {},
      description:
        'What its worker must have: `x_required: true` needs a worker that says `x_available: true`; ' +
        '`x_heavy: true` passes over workers that say `x_heavy: false`. No other keys.',
    },
  },
  payload: {
    property: 'payload',
    kind: 'object',
    description: 'The JSON object that is passed to the worker.',
    example: { model: 'sdxl', prompt: 'a cat' },
    submission: { default: {} },
  },
  state: { property: 'state', kind: 'state', description: 'Where it is on its way.', example: 'QUEUED' },
  created_at: {
    property: 'createdAtMs',
    kind: 'time',
    description: 'When it was submitted.',
    example: '2025-12-28T20:15:00.000Z',
  },
  updated_at: {
    property: 'updatedAtMs',
    kind: 'time',
    description: 'When it was last changed.',
    example: '2025-12-28T20:15:00.000Z',
  },
  claimed_by: {
    property: 'claimedBy',
    kind: 'text',
    isNullable: true,
    description: 'The worker that has claimed or leased it.',
    example: null,
  },
  claim_expires_at: {
    property: 'claimExpiresAtMs',
    kind: 'time',
    isNullable: true,
    description: 'When its claim runs out.',
    example: null,
  },
  lease_id: {
    property: 'leaseId',
    kind: 'uuid',
    isNullable: true,
    description: 'Its lease; once it has ended, its last one; null while it waits for one.',
    example: null,
  },
  attempts: { property: 'attempts', kind: 'count', description: 'How many leases it has had.', example: 0 },
  next_retry_at: {
    property: 'nextRetryAtMs',
    kind: 'time',
    isNullable: true,
    description: 'When it may be tried again.',
    example: null,
  },
  client_request_id: {
    property: 'clientRequestId',
    kind: 'text',
    isNullable: true,
    description: "The submitter's own key.",
    example: 'order-17',
    submission: {
      form: 'key',
      description:
        'Makes a submission safe to repeat: a second job of the same `addon_id` with this key is refused.',
    },
  },
  stream: {
    property: 'stream',
    kind: 'text',
    isNullable: true,
    description: 'The stream that delivers it.',
    example: null,
    submission: { form: 'name', description: 'Deliver it only to workers that ask for this stream.' },
  },
  unique: {
    property: 'unique',
    kind: 'flag',
    description: 'It is not given to a worker that already holds a lease.',
    example: false,
    submission: {
      default: false,
      description:
        'Not given to a worker that already holds a lease. It does not detect duplicates: ' +
        '`client_request_id` does.',
    },
  },
  tags: {
    property: 'tags',
    kind: 'labels',
    description: 'Labels that are kept with it.',
    example: [],
    submission: { default: [], description: 'Labels that are kept with the job and shown with it.' },
  },
  max_runtime_s: {
    property: 'maxRuntimeS',
    kind: 'whole',
    isNullable: true,
    description: 'Seconds after which a lease of it ends, whatever its heartbeats say.',
    example: null,
    submission: { minimum: 1, maximum: limits.maxRuntimeS },
  },
  max_attempts: {
    property: 'maxAttempts',
    kind: 'whole',
    description: 'Attempts before an expiry or a retryable failure is final.',
    example: 1,
    submission: { minimum: 1, maximum: limits.maxAttempts },
  },
  retry_backoff_s: {
    property: 'retryBackoffS',
    kind: 'whole',
    description: 'Seconds before the second attempt; doubled for each one after it.',
    example: 2,
    submission: { default: limits.retryBackoffSDefault, minimum: 0, maximum: limits.retryBackoffS },
  },
  run_at: {
    property: 'runAtMs',
    kind: 'time',
    isNullable: true,
    description: 'Not to be started before this time.',
    example: null,
    submission: {},
  },
  cancel_requested: {
    property: 'cancelRequested',
    kind: 'flag',
    description: 'A client asked to cancel it; its worker learns of it with its next heartbeat.',
    example: false,
  },
  progress: {
    property: 'progress',
    kind: 'share',
    isNullable: true,
    description: 'How far its worker says it is.',
    example: null,
  },
  note: {
    property: 'note',
    kind: 'text',
    isNullable: true,
    description: 'What its worker said last.',
    example: null,
  },
  dead_lettered: {
    property: 'deadLettered',
    kind: 'flag',
    description: 'Its stream has given it up: it failed for good, or too often.',
    example: false,
  },
} as const satisfies Record<string, JobField>;

export interface JobResult {
  jobId: string;
  status: FinalStatus;
  resultData: Json;
  error: string | null;
  errorDetail: JsonObject | null;
  startedAtMs: number | null;
  finishedAtMs: number;
  attempts: number;
  metrics: JsonObject | null;
}

export interface JobWithResult {
  job: Job;
  result: JobResult | null;
}

export interface JobEvent {
  /** Rises with time within a job. A bigint in the database, given as its decimal digits. */
  eventId: string;
  tsMs: number;
  type: EventType;
  jobId: string;
  leaseId: string | null;
  data: JsonObject;
}
