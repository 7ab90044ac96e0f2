import Type, { type Static, type TSchema } from 'typebox';
import { priorities } from './job.ts';
import { limits } from './limits.ts';
import { type State, states } from './machine.ts';

/**
 * What may be asked, as JSON schemas in the contracts' own words. Every face hands its request to the same schema
 * (see `parse.ts`), so a bad field is refused in the same way whichever door it came through, and the API's
 * description is made from what is really checked. An optional field may also be null, as JSON clients write it.
 */
const optional = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));

const name = (description: string) =>
  Type.String({ minLength: 1, maxLength: limits.nameChars, pattern: '\\S', description });
const json = (description: string) => Type.Record(Type.String(), Type.Unknown(), { description });
const whole = (minimum: number, maximum: number, description: string) =>
  Type.Integer({ minimum, maximum, description });
const text = (description: string) => Type.String({ maxLength: limits.noteChars, description });
const instant = (description: string) => Type.String({ format: 'date-time', maxLength: 40, description });
const requestId = Type.String({ minLength: 1, maxLength: limits.requestIdChars });

/** The states that the queue contract has words for. */
export const contractStates = states.filter((state): state is Exclude<State, 'LEASED'> => state !== 'LEASED');

export const PrioritySchema = Type.Enum([...priorities], { description: 'Which jobs go first.' });

export const SubmitJob = Type.Object({
  addon_id: name('Who submits the job.'),
  job_type: name('What kind of work it is.'),
  priority: optional(PrioritySchema),
  cost_units: whole(1, limits.costUnits, 'Its weight, in units of capacity.'),
  constraints: optional(json('What it asks of a worker.')),
  payload: optional(json('The words to the worker.')),
  client_request_id: optional(requestId),
  stream: optional(name('Deliver it only to workers that ask for this stream.')),
  unique: optional(Type.Boolean({ description: 'Not for a worker that already holds a lease.' })),
  tags: optional(
    Type.Array(Type.String({ minLength: 1, maxLength: limits.tagChars }), { maxItems: limits.tags }),
  ),
  max_runtime_s: optional(whole(1, limits.maxRuntimeS, 'No lease of it lasts longer.')),
  max_attempts: optional(whole(1, limits.maxAttempts, 'How many leases it may have.')),
  retry_backoff_s: optional(whole(0, limits.retryBackoffS, 'The base of the exponential backoff.')),
  run_at: optional(instant('Not to be started before this time.')),
});
export type SubmitJob = Static<typeof SubmitJob>;

export const ClaimJobs = Type.Object({
  worker_id: name('Who claims.'),
  addon_id: optional(name('Only jobs of this submitter.')),
  limit: optional(whole(1, limits.claimJobs, 'How many jobs at the most.')),
  accept_job_types: optional(Type.Array(name('A kind of work.'), { maxItems: limits.choices })),
  max_cost_units: optional(whole(0, limits.costUnits, 'Only jobs of at most this weight.')),
  constraints_capabilities: optional(
    Type.Record(Type.String(), Type.Unknown(), {
      maxProperties: limits.capabilities,
      description: 'What the worker has, and what it will not take.',
    }),
  ),
  request_id: optional(requestId),
});
export type ClaimJobs = Static<typeof ClaimJobs>;

export const UpdateJobStatus = Type.Object({
  state: Type.Enum(contractStates, { description: 'The state the job should be in.' }),
  note: optional(text('What the worker has to say.')),
  progress: optional(Type.Number({ minimum: 0, maximum: 1, description: 'How far it is.' })),
  worker_id: optional(name('Who says so.')),
});
export type UpdateJobStatus = Static<typeof UpdateJobStatus>;

/** For cancelling and retrying alike: why, and who asks. */
export const OperatorRequest = Type.Object({
  reason: optional(text('Why, for the history.')),
  requested_by: optional(name('Who asks, for the history.')),
});
export type OperatorRequest = Static<typeof OperatorRequest>;

export const ListJobs = Type.Object({
  states: optional(Type.Array(Type.Enum([...states]), { maxItems: states.length })),
  addon_id: optional(name('Only jobs of this submitter.')),
  job_type: optional(name('Only jobs of this kind.')),
  stream: optional(name('Only jobs of this stream.')),
  created_after: optional(instant('Only jobs submitted after this time.')),
  created_before: optional(instant('Only jobs submitted before this time.')),
  limit: optional(whole(1, limits.pageRows, 'How many jobs at the most.')),
  cursor: optional(Type.String({ maxLength: 100 })),
});
export type ListJobs = Static<typeof ListJobs>;

export const ListJobEvents = Type.Object({
  limit: optional(whole(1, limits.pageRows, 'How many events at the most.')),
  cursor: optional(Type.String({ maxLength: 100 })),
});
export type ListJobEvents = Static<typeof ListJobEvents>;
