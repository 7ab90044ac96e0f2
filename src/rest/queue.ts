/** The queue contract's Jobs API, `/api/scheduler/jobs`: its paths, its words, its statuses. */
import { contractWord } from '../domain/claims.ts';
import { contractStates } from '../domain/commands.ts';
import { invalid, printable } from '../domain/errors.ts';
import type { Job, JobEvent, JobResult } from '../domain/job.ts';
import { parse } from '../domain/parsers.ts';
import { iso } from '../domain/times.ts';
import type { Engine } from '../engine/engine.ts';
import { draft } from '../engine/submit.ts';
import type { RestRequest, Route } from './router.ts';

export function queueRoutes({ submitter, claimer, changer, reader, settings }: Engine): Route[] {
  const jobs = '/api/scheduler/jobs';
  return [
    {
      method: 'POST',
      path: `${jobs}/submit`,
      async handle({ body, caller }) {
        const { job } = await submitter.submit(draft(parse.submitJob(body), false, settings), caller);
        return { status: 201, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${jobs}/claim`,
      async handle({ body, caller }) {
        const command = parse.claimJobs(body);
        const claimed = (await claimer.claim(command, caller)).map(jobIntent);
        if (claimed.length === 0) return { status: 204 };
        const all = (command.limit ?? 1) > 1 ? { jobs: claimed } : {};
        return { status: 200, body: { job: claimed[0], ...all } };
      },
    },
    {
      method: 'GET',
      path: jobs,
      async handle({ query, caller }) {
        const { items, nextCursor } = await reader.list(parse.listJobs(listQuery(query)), caller);
        return { status: 200, body: { jobs: items.map(jobIntent), next_cursor: nextCursor } };
      },
    },
    {
      method: 'GET',
      path: `${jobs}/{job_id}`,
      async handle({ path, caller }) {
        const { job, result } = await reader.get(jobId(path), caller);
        return { status: 200, body: { job: jobIntent(job), result: result && jobResult(result) } };
      },
    },
    {
      method: 'POST',
      path: `${jobs}/{job_id}/status`,
      async handle({ path, body, caller }) {
        const job = await changer.updateStatus(jobId(path), parse.updateJobStatus(body), caller);
        return { status: 200, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${jobs}/{job_id}/cancel`,
      async handle({ path, body, caller }) {
        const job = await changer.cancel(jobId(path), parse.operatorRequest(body), caller);
        return { status: 200, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${jobs}/{job_id}/retry`,
      async handle({ path, body, caller }) {
        const job = await changer.retry(jobId(path), parse.operatorRequest(body), caller);
        return { status: 200, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'GET',
      path: `${jobs}/{job_id}/events`,
      async handle({ path, query, caller }) {
        const command = parse.listJobEvents({ limit: wholeIn(query, 'limit'), cursor: query.get('cursor') });
        const { items, nextCursor } = await reader.events(jobId(path), command, caller);
        return { status: 200, body: { events: items.map(jobEvent), next_cursor: nextCursor } };
      },
    },
  ];
}

export const jobId = (path: RestRequest['path']): string => path.job_id ?? '';

function listQuery(query: URLSearchParams) {
  const states = query
    .getAll('state')
    .flatMap((words) => words.split(','))
    .filter((word) => word !== '');
  for (const state of states) {
    if (contractStates.every((word) => word !== state)) {
      throw invalid('state', `must be one of ${contractStates.join(', ')}, not ${printable(state)}`);
    }
  }
  const { addon_id, job_type, stream, dead_lettered, created_after, created_before, cursor } =
    Object.fromEntries([...query].filter(([, value]) => value !== ''));
  return {
    states,
    addon_id,
    job_type,
    stream,
    dead_lettered: booleanIn(dead_lettered),
    created_after,
    created_before,
    cursor,
    limit: wholeIn(query, 'limit'),
  };
}

/** What is no word of JSON goes on as it came, for the schema to refuse by name. */
const booleanIn = (text: string | undefined): unknown =>
  text === 'true' ? true : text === 'false' ? false : text;

/** A whole number in the query; what is none goes on as it came, for the schema to refuse by name. */
export function wholeIn(query: URLSearchParams, name: string): unknown {
  const text = query.get(name) ?? '';
  if (text === '') return undefined;
  return /^-?\d{1,15}$/.test(text) ? Number(text) : text;
}

/** A job in the contract's words, and the fields that Leasehold has beside them. */
export const jobIntent = (job: Job) => ({
  job_id: job.jobId,
  addon_id: job.addonId,
  job_type: job.jobType,
  priority: job.priority,
  cost_units: job.costUnits,
  constraints: job.constraints,
  payload: job.payload,
  state: contractWord(job.state),
  created_at: iso(job.createdAtMs),
  updated_at: iso(job.updatedAtMs),
  claimed_by: job.claimedBy,
  claim_expires_at: iso(job.claimExpiresAtMs),
  lease_id: job.leaseId,
  attempts: job.attempts,
  next_retry_at: iso(job.nextRetryAtMs),
  client_request_id: job.clientRequestId,
  stream: job.stream,
  unique: job.unique,
  tags: job.tags,
  max_runtime_s: job.maxRuntimeS,
  max_attempts: job.maxAttempts,
  retry_backoff_s: job.retryBackoffS,
  run_at: iso(job.runAtMs),
  cancel_requested: job.cancelRequested,
  progress: job.progress,
  note: job.note,
  dead_lettered: job.deadLettered,
});

export const jobResult = (result: JobResult) => ({
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

const jobEvent = (event: JobEvent) => ({
  event_id: event.eventId,
  ts: iso(event.tsMs),
  type: event.type,
  lease_id: event.leaseId,
  data: event.data,
});
