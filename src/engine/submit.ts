import type { SubmitJob } from '../domain/commands.ts';
import { needsOf } from '../domain/constraints.ts';
import { DomainError } from '../domain/errors.ts';
import { type Job, type JsonObject, type Priority, priorities } from '../domain/job.ts';
import { limits } from '../domain/limits.ts';
import { instantMs, within } from '../domain/parse.ts';
import type { Lane } from '../store/statements/lanes.ts';
import { readJobs } from '../store/statements/read-jobs.ts';
import {
  type FirstJob,
  findByClientRequest,
  type NewJob,
  submitJobs,
} from '../store/statements/submit-jobs.ts';
import { Batcher } from './batcher.ts';
import { type Caller, type EngineContext, type EngineSettings, waitingMax } from './context.ts';
import { deal } from './deal.ts';
import { newId } from './ids.ts';
import { LaneDirectory } from './lane-directory.ts';
import { workOf } from './work.ts';

/** A checked submission, ready to be written. */
export interface Draft extends NewJob {
  tags: string[];
  lane: Lane;
  priorityName: Priority;
  constraintsObject: JsonObject;
  payloadObject: JsonObject;
  returnExisting: boolean;
}

export interface Submitted {
  jobId: string;
  createdAtMs: number;
  /** It was there before, and the caller asked for it to be found. */
  existing: boolean;
}

/** Jobs of one statement at the most. */
const jobsMax = 500;
/** Jobs that are worth a statement beside those in flight: while one waits for the disk, another is worked on. */
const companionJobs = 250;
/** A job weighs one for itself and one for every so many bytes, so that a statement stays below some 4 MB. */
const bytesPerWeight = 8_192;

/** Turns a checked command into a draft, or says what is wrong with it. */
export function draft(command: SubmitJob, returnExisting: boolean, settings: EngineSettings, at = ''): Draft {
  const constraintsObject = (command.constraints ?? {}) as JsonObject;
  const payloadObject = (command.payload ?? {}) as JsonObject;
  const constraints = JSON.stringify(constraintsObject);
  const payload = JSON.stringify(payloadObject);
  const bytes = Buffer.byteLength(constraints) + Buffer.byteLength(payload);
  if (bytes > limits.jobBytes) throw tooLarge(at);
  const priorityName = command.priority ?? 'NORMAL';
  const stream = command.stream ?? null;
  return {
    jobId: newId(),
    addonId: command.addon_id,
    jobType: command.job_type,
    stream,
    priority: priorities.indexOf(priorityName),
    priorityName,
    costUnits: command.cost_units,
    constraints,
    constraintsObject,
    lane: {
      stream,
      addonId: command.addon_id,
      jobType: command.job_type,
      unique: command.unique ?? false,
      ...needsOf(constraintsObject, within(at, 'constraints')),
    },
    payload,
    payloadObject,
    clientRequestId: command.client_request_id ?? null,
    unique: command.unique ?? false,
    tags: command.tags ?? [],
    maxRuntimeS: command.max_runtime_s ?? null,
    maxAttempts:
      command.max_attempts ?? (stream === null ? settings.maxAttempts : settings.streamMaxAttempts),
    retryBackoffS: command.retry_backoff_s ?? limits.retryBackoffSDefault,
    runAtMs: command.run_at == null ? null : instantMs(command.run_at, within(at, 'run_at')),
    bytes,
    returnExisting,
  };
}

function tooLarge(at: string): DomainError {
  const field = within(at, 'payload');
  return new DomainError('payload_too_large', `${field}: a job may take at most ${limits.jobBytes} bytes`, {
    field,
  });
}

/** Submits jobs, gathering the calls of all callers into batches. */
export class Submitter {
  readonly #context: EngineContext;
  readonly #lanes = new LaneDirectory();
  readonly #batcher: Batcher<readonly Draft[], readonly (Submitted | DomainError)[]>;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new Batcher({
      meter: context.metrics.batch('submit'),
      flush: (calls, signal) => this.#flush(calls, signal),
      sizeMax: jobsMax,
      flightsMax: 3,
      companionWeight: companionJobs,
      weigh: (drafts) => drafts.length + drafts.reduce((sum, { bytes }) => sum + bytes, 0) / bytesPerWeight,
      weightMax: jobsMax,
      waitingMax,
    });
  }

  /** Submits one job and answers with it. */
  async submit(one: Draft, { signal }: Caller): Promise<{ job: Job; existing: boolean }> {
    const [submitted] = await this.#batcher.run([one], signal);
    if (!submitted || submitted instanceof DomainError)
      throw submitted ?? new Error('a submission got no answer');
    if (!submitted.existing) return { job: jobOf(one, submitted.createdAtMs), existing: false };
    const found = (await readJobs(this.#context.database, [submitted.jobId], signal)).get(submitted.jobId);
    if (!found) throw new DomainError('job_not_found', 'the first job with this client_request_id is gone');
    return { job: found.job, existing: true };
  }

  /** Submits many; each has its own outcome, in the order given. */
  submitMany(drafts: readonly Draft[], { signal }: Caller): Promise<readonly (Submitted | DomainError)[]> {
    return drafts.length === 0 ? Promise.resolve([]) : this.#batcher.run(drafts, signal);
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  async #flush(calls: readonly (readonly Draft[])[], signal: AbortSignal | undefined) {
    const drafts = calls.length === 1 ? (calls[0] as readonly Draft[]) : calls.flat();
    const { database, reaper, waker, prospects, transport } = this.#context;
    const laneIds = await this.#lanes.numbersOf(
      database,
      drafts.map(({ lane }) => lane),
    );
    const { createdAtMs, written } = await submitJobs(
      database,
      drafts,
      { laneIds, keepsMessages: transport.keepsMessages },
      signal,
    );
    const duplicates = written === 'all' ? [] : drafts.filter(({ jobId }) => !written.has(jobId));
    const first = await this.#firstJobs(duplicates, signal);
    const submitted = written === 'all' ? drafts : drafts.filter(({ jobId }) => written.has(jobId));
    waker.publishWork(workOf(submitted.map(({ stream }) => stream)));
    prospects.jobsCame(submitted.length);
    transport.send(
      submitted.flatMap(({ jobId, stream }) => (stream === null ? [] : { jobId, stream, attempt: 1 })),
    );
    for (const { runAtMs } of drafts) if (runAtMs !== null) reaper.expectIn(runAtMs - createdAtMs);
    const answers = drafts.map((one) => {
      if (written === 'all' || written.has(one.jobId))
        return { jobId: one.jobId, createdAtMs, existing: false };
      return duplicate(one, first.get(keyOf(one)));
    });
    return deal(
      answers,
      calls.map(({ length }) => length),
    );
  }

  /** The jobs that hold the keys, by key. */
  async #firstJobs(
    drafts: readonly Draft[],
    signal: AbortSignal | undefined,
  ): Promise<Map<string, FirstJob>> {
    if (drafts.length === 0) return new Map();
    const keys = drafts.map(({ addonId, clientRequestId }) => ({
      addonId,
      clientRequestId: clientRequestId ?? '',
    }));
    const found = await findByClientRequest(this.#context.database, keys, signal);
    return new Map(found.map((row) => [keyOf(row), row]));
  }
}

function duplicate(one: Draft, first: FirstJob | undefined): Submitted | DomainError {
  if (!first) return new DomainError('unavailable', 'the submission met one that was undone; try again');
  const { jobId, createdAtMs } = first;
  if (one.returnExisting) return { jobId, createdAtMs, existing: true };
  const words = `client_request_id ${JSON.stringify(one.clientRequestId)} was used before, for job ${jobId}`;
  return new DomainError('duplicate_request', words, { jobId, field: 'client_request_id' });
}

const keyOf = ({ addonId, clientRequestId }: { addonId: string; clientRequestId: string | null }): string =>
  JSON.stringify([addonId, clientRequestId]);

/** The job as it stands right after its submission; nothing has to be read for it. */
function jobOf(one: Draft, createdAtMs: number): Job {
  return {
    jobId: one.jobId,
    addonId: one.addonId,
    jobType: one.jobType,
    priority: one.priorityName,
    costUnits: one.costUnits,
    constraints: one.constraintsObject,
    payload: one.payloadObject,
    state: 'QUEUED',
    createdAtMs,
    updatedAtMs: createdAtMs,
    claimedBy: null,
    claimExpiresAtMs: null,
    leaseId: null,
    attempts: 0,
    nextRetryAtMs: one.runAtMs !== null && one.runAtMs > createdAtMs ? one.runAtMs : null,
    clientRequestId: one.clientRequestId,
    stream: one.stream,
    unique: one.unique,
    tags: one.tags,
    maxRuntimeS: one.maxRuntimeS,
    maxAttempts: one.maxAttempts,
    retryBackoffS: one.retryBackoffS,
    runAtMs: one.runAtMs,
    cancelRequested: false,
    progress: null,
    note: null,
    deadLettered: false,
  };
}
