/** Jobs with the queue contract's field names, and Leasehold's additional fields. */
import Type, { type Static, type TSchema, type TUnsafe } from 'typebox';
import { contractState } from '../../domain/jobs/claim-policy.ts';
import {
  finalStatuses,
  type Job,
  type JobEvent,
  type JobResult,
  type JsonObject,
  priorities,
} from '../../domain/jobs/job.ts';
import {
  type FieldKind,
  type JobBody,
  type JobFieldName,
  jobFieldList,
} from '../../domain/jobs/job-fields.ts';
import { eventTypes } from '../../domain/jobs/state-machine.ts';
import { contractStates } from '../../domain/requests/scheduler.ts';
import { iso } from '../../domain/time.ts';
import { objectMapper } from '../../lib/object-mapper.ts';
import {
  anyJson,
  count,
  entity,
  flag,
  jsonObject,
  list,
  oneOf,
  orNull,
  share,
  time,
  uuid,
  whole,
  word,
} from '../openapi/schema-types.ts';

/** The field types of answers, by the kinds of fields. */
const schemas: Record<FieldKind, (description: string) => TSchema> = {
  uuid,
  text: word,
  time,
  whole,
  count,
  share,
  flag,
  object: jsonObject,
  constraints: jsonObject,
  labels: (description) => list(Type.String(), description),
  priority: (description) => oneOf(priorities, description),
  state: (description) => oneOf(contractStates, description),
};

type JobSchemas = { [Name in JobFieldName]: TUnsafe<JobBody[Name]> };

/** The fields come from `jobFields` in `domain/jobs/job.ts`. */
export const JobIntent = entity(
  'JobIntent',
  'A job.',
  Object.fromEntries(
    jobFieldList.map(({ name, kind, isNullable, description }) => {
      const schema = schemas[kind](description);
      return [name, isNullable ? orNull(schema) : schema];
    }),
  ) as unknown as JobSchemas,
);

/** How values of a job are written, where they are not written as they are. */
export const jobConverters: Partial<Record<FieldKind, (value: never) => unknown>> = {
  time: iso,
  state: contractState,
};

export const jobIntent = objectMapper<Job, JobBody>(
  Object.fromEntries(
    jobFieldList.map(({ name, property, kind }) => [name, { from: property, convert: jobConverters[kind] }]),
  ),
);

export const JobOutcome = entity('JobResult', 'What came of a job.', {
  job_id: uuid('The job.'),
  status: oneOf(finalStatuses, 'How it went.'),
  result_data: anyJson('The result that its worker sent.'),
  error: orNull(word('What went wrong, in words.')),
  error_detail: orNull(jsonObject('What went wrong, as an object where one came.')),
  started_at: orNull(time('When its last lease was granted.')),
  finished_at: time('When it was over.'),
  attempts: count('How many leases it took.'),
  metrics: orNull(jsonObject('Figures that came with the result.')),
});

export const jobResult = (result: JobResult): Static<typeof JobOutcome> => ({
  job_id: result.jobId,
  status: result.status,
  result_data: result.resultData,
  error: result.error,
  error_detail: result.errorDetail,
  started_at: iso(result.startedAtMs),
  finished_at: iso(result.finishedAtMs),
  attempts: result.attempts,
  metrics: result.metrics,
});

export const JobHappening = entity('JobEvent', 'One thing that happened to a job.', {
  event_id: word('Rises with time within a job; decimal digits.'),
  ts: time('When it happened.'),
  type: oneOf(eventTypes, 'What happened.'),
  lease_id: orNull(uuid('The lease that it has to do with.')),
  data: jsonObject('Who did it, why, and what belongs to it.'),
});

export const jobEvent = (event: JobEvent): Static<typeof JobHappening> => ({
  event_id: event.eventId,
  ts: iso(event.tsMs),
  type: event.type,
  lease_id: event.leaseId,
  data: inContractWords(event.data),
});

/** The contracts have no LEASED; they show RUNNING. */
function inContractWords(data: JsonObject): JsonObject {
  const { from, to } = data;
  if (from !== 'LEASED' && to !== 'LEASED') return data;
  return {
    ...data,
    from: from === 'LEASED' ? 'RUNNING' : from,
    to: to === 'LEASED' ? 'RUNNING' : to,
  } as JsonObject;
}
