import { create } from '@bufbuild/protobuf';
import { protoCamelCase } from '@bufbuild/protobuf/reflect';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import {
  JobEventSchema,
  JobResultSchema,
  JobSchema,
  type JobsService,
  OnDuplicate,
  OnDuplicateSchema,
  type Priority,
  type SubmitJobRequest,
} from '../../../gen/leasehold/v1/jobs_pb.js';
import { DomainError, invalid } from '../../domain/errors.ts';
import { contractState } from '../../domain/jobs/claim-policy.ts';
import { type FieldKind, submittedFieldList } from '../../domain/jobs/job-fields.ts';
import { limits } from '../../domain/limits.ts';
import { parse } from '../../domain/requests/parsers.ts';
import { within } from '../../domain/requests/validator.ts';
import type { Engine } from '../../engine/engine.ts';
import { type Draft, draft, type Submitted } from '../../engine/jobs/submitter.ts';
import { objectMapper } from '../../lib/object-mapper.ts';
import type { Implementation } from '../implementation.ts';
import { bytesOf, groupsThatFit, pageThatFits } from '../response-size.ts';
import { noSuchValue } from '../wire/enums.ts';
import { eventMessage, jobMessage, resultMessage, toIso, toPriority, toState } from './convert.ts';
import { claimJobsResponse, submitJobResponse, submitJobsResponse } from './encode.ts';

/** Reads the fields of a submission by their names in the proto. */
const commandOf = objectMapper<SubmitJobRequest, object, string>(
  Object.fromEntries(
    submittedFieldList.map(({ name, kind }) => [
      name,
      { from: protoCamelCase(name), convert: readerOf(name, kind) },
    ]),
  ),
);

function readerOf(name: string, kind: FieldKind) {
  if (kind === 'priority') return (value: Priority, at: string) => toPriority(value, within(at, name));
  if (kind === 'time') return (value: Timestamp | undefined, at: string) => toIso(value, within(at, name));
  return undefined;
}

/** JobsService: proto in, one engine call, proto out. */
export function jobsImplementation(engine: Engine): Implementation<typeof JobsService> {
  const { jobs, settings } = engine;

  const draftOf = (request: SubmitJobRequest, at = ''): Draft => {
    const command = parse.submitJob(commandOf(request, at), at);
    return draft(command, returnsExisting(request.onDuplicate, within(at, 'on_duplicate')), settings, at);
  };

  return {
    async submitJob(request, caller) {
      const { job, existing } = await jobs.submit(draftOf(request), caller);
      return submitJobResponse(job, existing);
    },

    async submitJobs(request, caller) {
      if (request.jobs.length > limits.batchJobs)
        throw invalid('jobs', `must not be more than ${limits.batchJobs}`);
      const drafts = request.jobs.map((job, i) => attempt(() => draftOf(job, `jobs[${i}]`)));
      const good = drafts.filter((one): one is Draft => !(one instanceof DomainError));
      const submitted = await jobs.submitMany(good, caller);
      let next = 0;
      return submitJobsResponse(
        drafts.map((one) => (one instanceof DomainError ? one : answered(submitted[next++]))),
      );
    },

    async claimJobs(request, caller) {
      const command = parse.claimJobs({
        addon_id: request.addonId === '' ? undefined : request.addonId,
        worker_id: request.workerId,
        limit: request.limit,
        accept_job_types: request.acceptJobTypes,
        max_cost_units: request.maxCostUnits,
        constraints_capabilities: request.constraintsCapabilities,
        request_id: request.requestId,
      });
      return claimJobsResponse(await jobs.claim(command, caller));
    },

    async getJob({ jobId }, caller) {
      const { job, result } = await jobs.get(jobId, caller);
      return { job: jobMessage(job), result: result === null ? undefined : resultMessage(result) };
    },

    async listJobs(request, caller) {
      const command = parse.listJobs({
        states: request.states.map((state, i) => toState(state, `states[${i}]`)),
        addon_id: request.addonId,
        job_type: request.jobType,
        stream: request.stream,
        dead_lettered: request.deadLettered,
        oldest_first: request.oldestFirst,
        created_after: toIso(request.createdAfter, 'created_after'),
        created_before: toIso(request.createdBefore, 'created_before'),
        limit: request.limit,
        cursor: request.cursor,
      });
      const { messages, nextCursor } = pageThatFits(await jobs.list(command, caller), {
        schema: JobSchema,
        messageOf: jobMessage,
        cursorOf: (job) => job.jobId,
      });
      return { jobs: messages, nextCursor };
    },

    async updateJobStatus({ jobId, state, note, progress, workerId }, caller) {
      const command = parse.updateJobStatus({
        // The contracts have no state LEASED. In a request it means the state that the contracts show for
        // such a job.
        state: contractState(toState(state, 'state')),
        note,
        progress,
        worker_id: workerId,
      });
      return { job: jobMessage(await jobs.updateStatus(jobId, command, caller)) };
    },

    async cancelJob({ jobId, reason, requestedBy }, caller) {
      const command = parse.operatorRequest({ reason, requested_by: requestedBy });
      return { job: jobMessage(await jobs.cancel(jobId, command, caller)) };
    },

    async retryJob({ jobId, reason, requestedBy }, caller) {
      const command = parse.operatorRequest({ reason, requested_by: requestedBy });
      return { job: jobMessage(await jobs.retry(jobId, command, caller)) };
    },

    async retryDeadLetters(request, caller) {
      const command = parse.retryJobs({
        stream: request.stream,
        addon_id: request.addonId,
        job_type: request.jobType,
        error_code: request.errorCode,
        limit: request.limit,
        reason: request.reason,
        requested_by: request.requestedBy,
      });
      return { jobIds: await jobs.retryDeadLetters(command, caller) };
    },

    async listStreams(request, caller) {
      const { limit, cursor } = request;
      const page = parse.listStreams({ stream: request.stream || undefined, limit, cursor });
      const { items, nextCursor } = await jobs.streams(page, caller);
      return { streams: items, nextCursor: nextCursor ?? undefined };
    },

    async listJobEvents({ jobId, limit, cursor }, caller) {
      const page = await jobs.events(jobId, parse.listJobEvents({ limit, cursor }), caller);
      const { messages, nextCursor } = pageThatFits(page, {
        schema: JobEventSchema,
        messageOf: eventMessage,
        cursorOf: ({ eventId }) => eventId,
      });
      return { events: messages, nextCursor };
    },

    async *watchJob({ jobId, afterEventId }, caller) {
      if (afterEventId !== undefined && afterEventId < 0n)
        throw invalid('after_event_id', 'must not be negative');
      for await (const { job, result, events } of jobs.watch(
        jobId,
        afterEventId?.toString() ?? null,
        caller,
      )) {
        const message = jobMessage(job);
        const ending = result === null ? undefined : resultMessage(result);
        const room =
          limits.answerBytes - bytesOf(JobSchema, message) - (ending ? bytesOf(JobResultSchema, ending) : 0);
        const all = events.map((event) => create(JobEventSchema, eventMessage(event)));
        const groups = groupsThatFit(JobEventSchema, all, room);
        // The result is in the last message.
        for (const [i, group] of groups.entries())
          yield { job: message, events: group, result: i === groups.length - 1 ? ending : undefined };
      }
    },
  };
}

function returnsExisting(onDuplicate: OnDuplicate, field: string): boolean {
  if (OnDuplicate[onDuplicate] === undefined) throw noSuchValue(OnDuplicateSchema, onDuplicate, field);
  return onDuplicate === OnDuplicate.RETURN_EXISTING;
}

/** An invalid job of a batch is an outcome. Only a programming error fails the whole call. */
function attempt<T>(work: () => T): T | DomainError {
  try {
    return work();
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
}

function answered(answer: Submitted | DomainError | undefined): Submitted | DomainError {
  if (answer === undefined) throw new Error('a job of a batch got no outcome');
  return answer;
}
