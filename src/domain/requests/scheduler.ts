import Type, { type Static, type TOptional, type TSchema, type TUnsafe } from 'typebox';
import { capabilityKeys, constraintKeys } from '../jobs/constraints.ts';
import { finalStatuses, priorities } from '../jobs/job.ts';
import { type SubmissionBody, submittedFieldList } from '../jobs/job-fields.ts';
import { type State, states } from '../jobs/state-machine.ts';
import { leaseStates } from '../leases/lease.ts';
import { limits } from '../limits.ts';

/**
 * Requests as JSON schemas with the contracts' field names. Every API validates with the same schema (see
 * `validator.ts`), so all APIs reject a bad field in the same way. The API's description derives from these
 * schemas. An optional field may also be null, as JSON clients write it.
 */
export const optional = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));

/** The name of a person or thing. */
export const name = (description: string) =>
  Type.String({ minLength: 1, maxLength: limits.nameChars, pattern: '\\S', description });
const json = (description: string, described: object = {}) =>
  Type.Record(Type.String(), Type.Unknown(), { description, described });
/**
 * Flags with such keys, for the API's description; `domain/jobs/constraints.ts` rejects other keys by name.
 */
const flags = ({ source: pattern }: RegExp) => ({
  propertyNames: { type: 'string', pattern },
  additionalProperties: { type: 'boolean' },
});
const whole = (minimum: number, maximum: number, description: string) =>
  Type.Integer({ minimum, maximum, description });
const text = (description: string) => Type.String({ maxLength: limits.noteChars, description });
const instant = (description: string) => Type.String({ format: 'date-time', maxLength: 40, description });
const progress = () => optional(Type.Number({ minimum: 0, maximum: 1, description: 'How far it is.' }));
const id = (description: string) =>
  Type.String({ minLength: 1, maxLength: limits.requestIdChars, description });
const requestId = () => id('Makes it safe to ask again: the same id is granted the same.');
export const pageSize = (maximum: number, usual: number, description: string) =>
  Type.Integer({ minimum: 1, maximum, default: usual, description });
export const cursorOf = (maxLength: number, described: object = {}) =>
  Type.String({ maxLength, description: 'Where the page before this one ended.', described });
/** The form of a cursor, for the API's description; the engine rejects other cursors with its own error. */
export const uuidCursor = { format: 'uuid' };
export const numberCursor = { pattern: '^[0-9]{1,18}$' };
const cursor = (described: object) => cursorOf(100, described);

/** The states that the queue contract names. */
export const contractStates = states.filter((state): state is Exclude<State, 'LEASED'> => state !== 'LEASED');

export const PrioritySchema = Type.Enum([...priorities], { description: 'Which jobs go first.' });

type SubmissionSchemas = {
  [Name in keyof SubmissionBody]-?: undefined extends SubmissionBody[Name]
    ? TOptional<TUnsafe<Exclude<SubmissionBody[Name], undefined>>>
    : TUnsafe<SubmissionBody[Name]>;
};

/** The fields of a job that a client sets; see `jobFields` in `domain/jobs/job.ts`. */
export const SubmitJob = Type.Object(
  Object.fromEntries(
    submittedFieldList.map((field) => {
      const schema = submittedSchema(field);
      return [field.name, field.submission.isRequired ? schema : optional(schema)];
    }),
  ) as unknown as SubmissionSchemas,
);
export type SubmitJob = SubmissionBody;

function submittedSchema({ kind, submission, ...field }: (typeof submittedFieldList)[number]): TSchema {
  const { minimum = 0, maximum = 0, form } = submission;
  const description = submission.description ?? field.description;
  switch (kind) {
    case 'priority':
      return PrioritySchema;
    case 'whole':
      return whole(minimum, maximum, description);
    case 'text':
      return form === 'key' ? id(description) : name(description);
    case 'constraints':
      return json(description, flags(constraintKeys.pattern));
    case 'object':
      return json(description);
    case 'flag':
      return Type.Boolean({ description });
    case 'labels':
      return Type.Array(Type.String({ minLength: 1, maxLength: limits.tagChars, description: 'A label.' }), {
        maxItems: limits.tags,
        description,
      });
    case 'time':
      return instant(description);
    default:
      throw new Error(`no request has a field of kind ${kind}`);
  }
}

const capabilities = () =>
  Type.Record(Type.String(), Type.Unknown(), {
    maxProperties: limits.capabilities,
    described: flags(capabilityKeys.pattern),
    description:
      'What the worker has (`x_available: true`) and what it will not take (`x_heavy: false`). What it does not say, it does not have. No other keys.',
  });

const jobTypes = () =>
  Type.Array(name('A kind of work.'), {
    maxItems: limits.choices,
    description: 'Only jobs of these kinds; of all kinds where it is empty.',
  });

export const ClaimJobs = Type.Object({
  worker_id: name('Who claims.'),
  addon_id: optional(name('Only jobs of this submitter.')),
  limit: optional(whole(1, limits.claimJobs, 'How many jobs at the most.')),
  accept_job_types: optional(jobTypes()),
  max_cost_units: optional(whole(0, limits.costUnits, 'Only jobs of at most this weight.')),
  constraints_capabilities: optional(capabilities()),
  request_id: optional(requestId()),
});
export type ClaimJobs = Static<typeof ClaimJobs>;

export const UpdateJobStatus = Type.Object({
  state: Type.Enum(contractStates, { description: 'The state the job should be in.' }),
  note: optional(text('What the worker has to say.')),
  progress: progress(),
  worker_id: optional(name('Who says so.')),
});
export type UpdateJobStatus = Static<typeof UpdateJobStatus>;

/** Shared by cancel and retry: the reason, and who requests it. */
export const OperatorRequest = Type.Object({
  reason: optional(text('Why, for the history.')),
  requested_by: optional(name('Who asks, for the history.')),
});
export type OperatorRequest = Static<typeof OperatorRequest>;

/** Which dead letters to retry. */
export const RetryJobs = Type.Object({
  stream: optional(name('Only jobs of this stream.')),
  addon_id: optional(name('Only jobs of this submitter.')),
  job_type: optional(name('Only jobs of this kind.')),
  error_code: optional(name('Only jobs whose last error has this code.')),
  limit: optional(whole(1, limits.retryJobs, 'How many jobs at the most.')),
  ...OperatorRequest.properties,
});
export type RetryJobs = Static<typeof RetryJobs>;

export const ListJobs = Type.Object({
  states: optional(Type.Array(Type.Enum([...states]), { maxItems: states.length })),
  addon_id: optional(name('Only jobs of this submitter.')),
  job_type: optional(name('Only jobs of this kind.')),
  stream: optional(name('Only jobs of this stream.')),
  dead_lettered: optional(Type.Boolean({ description: 'Only dead letters, or only other jobs.' })),
  created_after: optional(
    instant("Only jobs whose created_at, the database's time in milliseconds, is later."),
  ),
  created_before: optional(
    instant("Only jobs whose created_at, the database's time in milliseconds, is earlier."),
  ),
  oldest_first: optional(Type.Boolean({ description: 'The oldest first; the default is the newest first.' })),
  limit: optional(pageSize(limits.pageRows, limits.pageRowsDefault, 'How many jobs at the most.')),
  cursor: optional(cursor(uuidCursor)),
});
export type ListJobs = Static<typeof ListJobs>;

const { states: _, ...jobFilters } = ListJobs.properties;

/** The same filters as query parameters, where a state is one of the contract's names. */
export const ListJobsQuery = Type.Object({
  state: optional(
    Type.Array(Type.Enum(contractStates), {
      maxItems: states.length,
      description: 'Only jobs in this state; several with commas, or given more than once.',
    }),
  ),
  ...jobFilters,
});
export type ListJobsQuery = Static<typeof ListJobsQuery>;

export const ListStreams = Type.Object({
  stream: optional(name('Only this stream.')),
  limit: optional(pageSize(limits.pageRows, limits.pageRows, 'How many streams at the most.')),
  cursor: optional(
    Type.String({ maxLength: limits.nameChars, description: 'Where the page before this one ended.' }),
  ),
});
export type ListStreams = Static<typeof ListStreams>;

export const ListJobEvents = Type.Object({
  limit: optional(pageSize(limits.pageRows, limits.pageRows, 'How many events at the most.')),
  cursor: optional(cursor(numberCursor)),
});
export type ListJobEvents = Static<typeof ListJobEvents>;

const ttlSec = () =>
  whole(
    1,
    limits.leaseTtlS,
    'How long the lease lasts without a heartbeat, in seconds. The setting where it is left out.',
  );

/**
 * Fields of the job in the queue contract's lease request. They are ignored; the stored job's values apply.
 */
const notRead = (description: string) => Type.Optional(Type.Unknown({ description }));
const ofTheJob = {
  job_type: notRead("The job's type. Not read: the job's own stands."),
  cost_units: notRead("The job's weight. Not read: the job's own stands."),
  priority: notRead("The job's priority. Not read: the job's own stands."),
  constraints: notRead("The job's constraints. Not read: the job's own stand."),
};

export const RequestLease = Type.Object({
  job_id: Type.String({ description: 'The claimed job.' }),
  addon_id: optional(name('Who submitted it.')),
  worker_id: optional(name('Who has claimed it.')),
  ttl_sec: optional(ttlSec()),
  request_id: optional(requestId()),
  ...ofTheJob,
});
export type RequestLease = Static<typeof RequestLease>;

export const AcquireLease = Type.Object({
  worker_id: name('Who asks for work.'),
  max_units: optional(whole(1, limits.costUnits, 'Only jobs of at most this weight.')),
  constraints_capabilities: optional(capabilities()),
  addon_id: optional(name('Only jobs of this submitter.')),
  accept_job_types: optional(jobTypes()),
  streams: optional(
    Type.Array(name('A stream.'), {
      maxItems: limits.choices,
      description: 'Jobs of these streams, the first before the second, and no others.',
    }),
  ),
  wait_ms: optional(whole(0, limits.waitMs, 'How long to wait for a job and for capacity.')),
  ttl_sec: optional(ttlSec()),
  request_id: optional(requestId()),
});
export type AcquireLease = Static<typeof AcquireLease>;

const token = () => optional(Type.String({ maxLength: limits.nameChars, description: "The lease's token." }));

export const Heartbeat = Type.Object({
  worker_id: name('Who holds the lease.'),
  lease_token: token(),
  job_id: optional(Type.String({ description: 'The job.' })),
  progress: progress(),
  message: optional(text('What the worker has to say.')),
});
export type Heartbeat = Static<typeof Heartbeat>;

/** An error as an object. It may have more fields than are named here; all of them are stored. */
export const LeaseError = Type.Object(
  {
    message: optional(Type.String({ description: 'In words.' })),
    code: optional(Type.String({ maxLength: limits.nameChars, description: 'A name for it.' })),
    stack: optional(Type.String({ description: 'Where it was.' })),
    retryable: optional(Type.Boolean({ description: 'Whether another attempt may go better.' })),
  },
  { additionalProperties: true },
);
export type LeaseError = Static<typeof LeaseError>;

export const ReleaseLease = Type.Object({
  worker_id: name('Who holds the lease.'),
  lease_token: token(),
  job_id: optional(Type.String({ description: 'The job.' })),
  status: Type.Enum([...finalStatuses], { description: 'How the job went.' }),
  result_data: Type.Optional(Type.Unknown({ description: 'What came of it.' })),
  error: Type.Optional(
    Type.Union([Type.String(), LeaseError, Type.Null()], {
      description: 'What went wrong, in words or as an object.',
    }),
  ),
  metrics: optional(json('Figures to keep with the result.')),
});
export type ReleaseLease = Static<typeof ReleaseLease>;

export const ListLeases = Type.Object({
  states: optional(Type.Array(Type.Enum([...leaseStates]), { maxItems: leaseStates.length })),
  worker_id: optional(name('Only leases of this worker.')),
  job_id: optional(Type.String({ description: 'Only leases of this job.' })),
  limit: optional(pageSize(limits.pageRows, limits.pageRowsDefault, 'How many leases at the most.')),
  cursor: optional(cursor(uuidCursor)),
});
export type ListLeases = Static<typeof ListLeases>;

export const SetCapacity = Type.Object(
  {
    total: optional(whole(0, limits.costUnits, 'All units there are.')),
    busy_rating: optional(whole(0, 10, 'How busy the machines are with other things.')),
    ...OperatorRequest.properties,
  },
  {
    described: {
      anyOf: ['total', 'busy_rating'].map((name) => ({
        type: 'object',
        required: [name],
        properties: { [name]: { type: 'integer', description: 'One of both is required.' } },
      })),
    },
  },
);
export type SetCapacity = Static<typeof SetCapacity>;

export const ListCapacityChanges = Type.Object({
  limit: optional(pageSize(limits.pageRows, limits.pageRowsDefault, 'How many changes at the most.')),
  cursor: optional(cursor(numberCursor)),
});
export type ListCapacityChanges = Static<typeof ListCapacityChanges>;
