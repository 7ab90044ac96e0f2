import { DomainError } from '../../domain/errors.ts';
import { needsOf } from '../../domain/jobs/constraints.ts';
import { type Job, priorities } from '../../domain/jobs/job.ts';
import {
  type FieldKind,
  type Submission,
  type SubmittedFields,
  submittedFieldList,
} from '../../domain/jobs/job-fields.ts';
import { limits } from '../../domain/limits.ts';
import type { SubmitJob } from '../../domain/requests/scheduler.ts';
import { instantMs, within } from '../../domain/requests/validator.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { objectMapper } from '../../lib/object-mapper.ts';
import { splitByLength } from '../../lib/split-by-length.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { readJobs } from '../../store/sql/jobs/read.ts';
import {
  type FirstJob,
  findByClientRequest,
  type NewJob,
  type SubmittedJobs,
  submitJobs,
} from '../../store/sql/jobs/submit.ts';
import type { Lane, LaneTarget } from '../../store/sql/queue/lanes.ts';
import {
  type Caller,
  type EngineContext,
  type EngineSettings,
  waitingMax,
} from '../context/engine-context.ts';
import { LaneCache } from '../queue/lane-cache.ts';
import { overQuota } from '../quotas/over-quota.ts';

/** A validated submission, ready to be written. */
export interface Draft extends NewJob {
  /** The fields as the job shows them. */
  shown: SubmittedFields;
  lane: Lane;
  returnExisting: boolean;
}

export interface Submitted {
  jobId: string;
  createdAtMs: number;
  /** The job existed before, and the caller accepts that. */
  existing: boolean;
}

/** Maximum jobs of one statement. */
const jobsMax = 500;
/**
 * The number of jobs that justifies a statement beside the running ones: while one waits for the disk,
 * another runs.
 */
const companionJobs = 250;
/** A job weighs one, and one more for this many bytes, which keeps a statement below about 4 MB. */
const bytesPerWeight = 8_192;

/** Turns a validated command into a draft, or throws the reason why it is invalid. */
export function draft(command: SubmitJob, returnExisting: boolean, settings: EngineSettings, at = ''): Draft {
  const shown = submittedFields(command, at);
  shown.maxAttempts =
    command.max_attempts ?? (shown.stream === null ? settings.maxAttempts : settings.streamMaxAttempts);
  const constraints = JSON.stringify(shown.constraints);
  const payload = JSON.stringify(shown.payload);
  const bytes = Buffer.byteLength(constraints) + Buffer.byteLength(payload);
  if (bytes > limits.jobBytes) throw tooLarge(at);
  return {
    ...shown,
    priority: priorities.indexOf(shown.priority),
    constraints,
    payload,
    bytes,
    shown,
    lane: {
      stream: shown.stream,
      addonId: shown.addonId,
      jobType: shown.jobType,
      unique: shown.unique,
      ...needsOf(shown.constraints, within(at, 'constraints')),
    },
    returnExisting,
  };
}

/** Reads the fields of a command, with the defaults of `jobFields`. */
const submittedFields = objectMapper<SubmitJob, SubmittedFields, string>(
  Object.fromEntries(
    submittedFieldList.map(({ name, property, kind, submission }) => [
      property,
      { from: name, convert: readerOf(name, kind, submission) },
    ]),
  ),
);

function readerOf(name: string, kind: FieldKind, { isRequired, default: usual = null }: Submission) {
  if (isRequired) return undefined;
  if (kind === 'time')
    return (text: string | null | undefined, at: string) =>
      text == null ? usual : instantMs(text, within(at, name));
  return (value: unknown) => value ?? usual;
}

function tooLarge(at: string): DomainError {
  const field = within(at, 'payload');
  return new DomainError('payload_too_large', `${field}: a job may take at most ${limits.jobBytes} bytes`, {
    field,
  });
}

/** Submits jobs, in batches of the calls of all callers. */
export class Submitter {
  readonly #context: EngineContext;
  readonly #lanes = new LaneCache();
  readonly #batcher: Batcher<readonly Draft[], readonly (Submitted | DomainError)[]>;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new Batcher({
      meter: context.metrics.batch('submit'),
      flush: (calls, signal) => this.#flush(calls, signal),
      sizeMax: jobsMax,
      concurrencyMax: 3,
      minWeightWhenBusy: companionJobs,
      weigh: (drafts) => drafts.length + drafts.reduce((sum, { bytes }) => sum + bytes, 0) / bytesPerWeight,
      weightMax: jobsMax,
      waitingMax,
    });
  }

  /** Submits one job and returns it. */
  async submit(one: Draft, { signal }: Caller): Promise<{ job: Job; existing: boolean }> {
    for (;;) {
      const [submitted] = await this.#batcher.run([one], signal);
      if (!submitted || submitted instanceof DomainError)
        throw submitted ?? new Error('a submission got no answer');
      this.#context.metrics.noteIds({ job_id: submitted.jobId });
      if (!submitted.existing) return { job: jobOf(one, submitted), existing: false };
      const found = (await readJobs(this.#context.database, [submitted.jobId], signal)).get(submitted.jobId);
      if (found) return { job: found.job, existing: true };
      // The pruner has deleted the first job since, so its key is free.
    }
  }

  /** Submits many; each has its own outcome, in the order given. */
  submitMany(drafts: readonly Draft[], { signal }: Caller): Promise<readonly (Submitted | DomainError)[]> {
    return drafts.length === 0 ? Promise.resolve([]) : this.#batcher.run(drafts, signal);
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  async #flush(
    calls: readonly (readonly Draft[])[],
    signal: AbortSignal | undefined,
  ): Promise<(readonly (Submitted | DomainError)[])[]> {
    const drafts = calls.length === 1 ? (calls[0] as readonly Draft[]) : calls.flat();
    const answers = await this.#submitWithin(drafts, signal);
    return splitByLength(
      answers,
      calls.map(({ length }) => length),
    );
  }

  /** Submits what the quotas of its tenants allow. */
  async #submitWithin(
    drafts: readonly Draft[],
    signal: AbortSignal | undefined,
  ): Promise<readonly (Submitted | DomainError)[]> {
    const { database, quotaBook } = this.#context;
    const refused = quotaBook.isEmpty ? undefined : await overQuota(database, quotaBook, drafts, signal);
    if (!refused || refused.size === 0) return this.#submit(drafts, signal);
    // A submission that is repeated is answered as before, whatever the quota says now.
    const named = [...refused.keys()].filter(({ clientRequestId }) => clientRequestId !== null);
    const first = await this.#firstJobs(named, signal);
    const admitted = drafts.filter((one) => !refused.has(one) || first.has(keyOf(one)));
    const answers = (admitted.length > 0 ? await this.#submit(admitted, signal) : []).values();
    const isAdmitted = new Set(admitted);
    return drafts.map((one) =>
      isAdmitted.has(one)
        ? (answers.next().value as Submitted | DomainError)
        : (refused.get(one) as DomainError),
    );
  }

  async #submit(
    drafts: readonly Draft[],
    signal: AbortSignal | undefined,
  ): Promise<readonly (Submitted | DomainError)[]> {
    const { database, publisher } = this.#context;
    const { createdAtMs, jobIds } = await this.#write(drafts, signal);
    const duplicates = drafts.filter((_, i) => jobIds[i] === null);
    const written = drafts.flatMap(({ stream }, i) => {
      const jobId = jobIds[i] ?? null;
      return jobId === null ? [] : { jobId, stream, attempt: 1 };
    });
    publisher.publish({
      submitted: written.length,
      jobsReady: written.map(({ stream }) => stream),
      messagesQueued: written.flatMap(({ stream, ...message }) =>
        stream === null ? [] : { ...message, stream },
      ),
      nextDeadlineMs: drafts.reduce(
        (ms, { runAtMs }) => (runAtMs === null ? ms : Math.min(ms, runAtMs - createdAtMs)),
        Number.POSITIVE_INFINITY,
      ),
    });
    // The steps below may fail. The committed jobs are ready for workers even if the answer is lost.
    const first = await this.#firstJobs(duplicates, signal);
    if (first.size > 0) await database.awaitStandby(signal);
    // If the pruner has deleted the first job since, its key is free.
    const freed = duplicates.filter((one) => !first.has(keyOf(one)));
    const again = freed.length > 0 ? await this.#submit(freed, signal) : [];
    const answersOfFreed = again.values();
    return drafts.map((one, i) => {
      const jobId = jobIds[i] ?? null;
      if (jobId !== null) return { jobId, createdAtMs, existing: false };
      const job = first.get(keyOf(one));
      return job ? duplicate(one, job) : (answersOfFreed.next().value as Submitted | DomainError);
    });
  }

  /**
   * Writes the jobs into their lanes. If a lane was removed meanwhile, the jobs are written again, in a
   * transaction that keeps the lanes.
   */
  async #write(drafts: readonly Draft[], signal: AbortSignal | undefined): Promise<SubmittedJobs> {
    const { database, transport } = this.#context;
    const { keepsMessages } = transport;
    const lanes = drafts.map(({ lane }) => lane);
    const writeTo = (sql: Sql, places: readonly LaneTarget[]) =>
      submitJobs(sql, drafts, { places, keepsMessages }, signal);
    const places = await this.#lanes.placesOf(database, lanes);
    const submitted = places && (await writeTo(database, places));
    if (submitted?.kind === 'submitted') return submitted;
    const again = await this.#lanes.keeping(database, lanes, writeTo, signal);
    if (again.kind === 'submitted') return again;
    throw new Error('a lane was removed that a transaction keeps');
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

function duplicate(one: Draft, { jobId, createdAtMs }: FirstJob): Submitted | DomainError {
  if (one.returnExisting) return { jobId, createdAtMs, existing: true };
  const words = `client_request_id ${JSON.stringify(one.clientRequestId)} was used before, for job ${jobId}`;
  return new DomainError('duplicate_request', words, { jobId, field: 'client_request_id' });
}

const keyOf = ({ addonId, clientRequestId }: { addonId: string; clientRequestId: string | null }): string =>
  JSON.stringify([addonId, clientRequestId]);

/** The job right after its submission, without a read. */
const jobOf = ({ shown }: Draft, { jobId, createdAtMs }: Submitted): Job => ({
  ...unstarted,
  ...shown,
  jobId,
  createdAtMs,
  updatedAtMs: createdAtMs,
  nextRetryAtMs: shown.runAtMs !== null && shown.runAtMs > createdAtMs ? shown.runAtMs : null,
});

/** The fields that the server sets while the job runs. */
const unstarted = {
  state: 'QUEUED',
  claimedBy: null,
  claimExpiresAtMs: null,
  leaseId: null,
  attempts: 0,
  cancelRequested: false,
  progress: null,
  note: null,
  deadLettered: false,
} as const;
