import type {
  FinalStatus,
  Job,
  JobResult,
  JobWithResult,
  Json,
  JsonObject,
} from '../../../domain/jobs/job.ts';
import { priorities } from '../../../domain/jobs/job.ts';
import {
  isClaimed,
  isLeased,
  isTerminal,
  type State,
  stateNamed,
} from '../../../domain/jobs/state-machine.ts';
import { timeMs } from '../../connection/sql.ts';

/** A job as statements return it: its own row beside its live row or its outcome. */
export interface JobRecord {
  job_id: string;
  addon_id: string;
  job_type: string;
  stream: string | null;
  priority: number;
  cost_units: number;
  constraints: JsonObject;
  payload: JsonObject;
  client_request_id: string | null;
  is_unique: boolean;
  tags: string[];
  max_runtime_s: number | null;
  max_attempts: number;
  retry_backoff_s: number;
  run_at: string | null;
  created_at: string;
  state: number;
  check_at: string | null;
  attempts: number;
  claimed_by: string | null;
  claim_expires_at: string | null;
  lease_id: string | null;
  cancel_requested: boolean;
  progress: number | null;
  note: string | null;
  updated_at: string;
  dead_lettered: boolean;
}

const list = (columns: readonly string[]) => (table: string) =>
  columns.map((column) => `${table}.${column}`).join(', ');

const jobColumnNames = [
  'job_id',
  'addon_id',
  'job_type',
  'stream',
  'priority',
  'cost_units',
  'constraints',
  'payload',
  'client_request_id',
  'is_unique',
  'tags',
  'max_runtime_s',
  'max_attempts',
  'retry_backoff_s',
  'run_at',
  'created_at',
] as const;

const liveColumnNames = [
  'state',
  'check_at',
  'attempts',
  'claimed_by',
  'claim_expires_at',
  'lease_id',
  'cancel_requested',
  'progress',
  'note',
  'updated_at',
] as const;

/** The columns of a job's own row. */
export const jobColumns = list(jobColumnNames);

const resultColumns = list(liveColumnNames);

/** The columns of its live row that answers contain. */
export const liveColumns = (live: string): string => `${resultColumns(live)}, false as dead_lettered`;

/** The same for the query builder, of tables named `job` and `live`. */
export const jobSelection = jobColumnNames.map((column) => `job.${column}` as const);
export const liveSelection = liveColumnNames.map((column) => `live.${column}` as const);

export function toJob(record: JobRecord): Job {
  const state = stateNamed(record.state);
  return {
    jobId: record.job_id,
    addonId: record.addon_id,
    jobType: record.job_type,
    priority: priorityNamed(record.priority),
    costUnits: record.cost_units,
    constraints: record.constraints,
    payload: record.payload,
    state,
    createdAtMs: timeMs(record.created_at),
    updatedAtMs: timeMs(record.updated_at),
    claimedBy: record.claimed_by,
    claimExpiresAtMs: isClaimed(state) ? timeMs(record.claim_expires_at) : null,
    // The lease that a requeued job lost is in its history.
    leaseId: isLeased(state) || isTerminal(state) ? record.lease_id : null,
    attempts: record.attempts,
    // A parked job, which waits for more capacity, has no retry time.
    nextRetryAtMs: state === 'QUEUED' && record.check_at !== 'infinity' ? timeMs(record.check_at) : null,
    clientRequestId: record.client_request_id,
    stream: record.stream,
    unique: record.is_unique,
    tags: record.tags,
    maxRuntimeS: record.max_runtime_s,
    maxAttempts: record.max_attempts,
    retryBackoffS: record.retry_backoff_s,
    runAtMs: timeMs(record.run_at),
    cancelRequested: record.cancel_requested,
    progress: record.progress,
    note: record.note,
    deadLettered: record.dead_lettered,
  };
}

/** The additional columns of an ended job. */
export interface EndedRecord extends JobRecord {
  started_at: string | null;
  error_text: string | null;
  error_detail: JsonObject | null;
  result: Json;
  metrics: JsonObject | null;
}

const finalStatus: Partial<Record<State, FinalStatus>> = {
  DONE: 'SUCCEEDED',
  FAILED: 'FAILED',
  CANCELED: 'CANCELED',
  TIMEOUT: 'TIMEOUT',
};

export function toJobWithResult(record: EndedRecord): JobWithResult {
  const job = toJob(record);
  return { job, result: isTerminal(job.state) ? toResult(job, record) : null };
}

function toResult(job: Job, record: EndedRecord): JobResult {
  const status = finalStatus[job.state];
  if (!status) throw new Error(`a job in ${job.state} has no result`);
  return {
    jobId: job.jobId,
    status,
    resultData: record.result,
    error: record.error_text,
    errorDetail: record.error_detail,
    startedAtMs: timeMs(record.started_at),
    finishedAtMs: job.updatedAtMs,
    attempts: job.attempts,
    metrics: record.metrics,
  };
}

function priorityNamed(number: number) {
  const priority = priorities[number];
  if (!priority) throw new Error(`the database holds a priority this version does not know: ${number}`);
  return priority;
}
