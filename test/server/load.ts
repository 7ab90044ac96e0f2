/**
 * Clients that submit, claim, report progress and cancel over every protocol until the test stops them.
 *
 * Each client works in a loop, and enters acknowledged calls into the ledger. A failed call is recorded with
 * its code and its duration; the test decides whether the loop then continues.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { JobState } from '../../gen/leasehold/v1/jobs_pb.js';
import { type Answer, type Client, codeOf, connect } from '../support/server-clients.ts';
import type { Ledger, Sent } from './ledger.ts';

const batchJobs = 40;
const claimJobs = 5;
const pauseAfterFailureMs = 20;
const path = '/api/scheduler/jobs';

export interface Failure {
  /** An HTTP status, a gRPC code, or the error of a broken connection. */
  code: string;
  ms: number;
}

export interface LoadOptions {
  /** Whether a loop ends at its first failure; otherwise it repeats the call after a short delay. */
  endsAtFailure: boolean;
}

class RestFailure extends Error {
  readonly code: string;

  constructor({ status, body }: Answer) {
    super(`HTTP ${status}: ${JSON.stringify(body)}`);
    this.code = `HTTP ${status}`;
  }
}

function expectOk(answer: Answer): Answer {
  if (answer.status >= 300) throw new RestFailure(answer);
  return answer;
}

export class Load {
  readonly failures: Failure[] = [];
  readonly #client: Client;
  readonly #ledger: Ledger;
  readonly #options: LoadOptions;
  readonly #loops: Promise<void>;
  #stopped = false;
  #workers = 0;

  constructor(server: { http: string; grpc: string }, ledger: Ledger, options: LoadOptions) {
    this.#client = connect(server);
    this.#ledger = ledger;
    this.#options = options;
    const work: (() => Promise<void>)[] = [
      ...Array.from({ length: 4 }, () => () => this.#submitOverGrpc()),
      ...Array.from({ length: 4 }, () => () => this.#submitOverRest()),
      () => this.#submitBatch(),
      ...Array.from({ length: 2 }, () => this.#grpcWorker()),
      ...Array.from({ length: 2 }, () => this.#restWorker()),
    ];
    this.#loops = Promise.all(work.map((each) => this.#repeat(each))).then(() => {});
  }

  /** Ends each loop after its current call. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#loops;
    this.#client.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped = true;
    this.#client.close();
    await this.#loops;
  }

  async #repeat(work: () => Promise<void>): Promise<void> {
    while (!this.#stopped) {
      const startedAt = performance.now();
      try {
        await work();
      } catch (error) {
        this.failures.push({ code: failureCode(error), ms: performance.now() - startedAt });
        if (this.#options.endsAtFailure) return;
        await delay(pauseAfterFailureMs);
      }
    }
  }

  async #submitOverGrpc(): Promise<void> {
    const sent = this.#ledger.next();
    const { job } = await this.#client.jobs.submitJob(submission(sent));
    this.#ledger.enter(job?.jobId ?? '', sent);
  }

  async #submitOverRest(): Promise<void> {
    const sent = this.#ledger.next();
    const { key, jobType, costUnits, n } = sent;
    const body = {
      addon_id: 'load',
      job_type: jobType,
      cost_units: costUnits,
      payload: { n },
      client_request_id: key,
    };
    const answer = expectOk(await this.#client.rest('POST', `${path}/submit`, body));
    this.#ledger.enter(answer.body.job.job_id, sent);
  }

  async #submitBatch(): Promise<void> {
    const batch = Array.from({ length: batchJobs }, () => this.#ledger.next());
    const { outcomes } = await this.#client.jobs.submitJobs({ jobs: batch.map(submission) });
    for (const [i, { outcome }] of outcomes.entries()) {
      if (outcome.case !== 'submitted')
        throw new Error(`a job of a batch was refused: ${outcome.value?.detail}`);
      this.#ledger.enter(outcome.value.jobId, batch[i] as Sent);
    }
  }

  #grpcWorker(): () => Promise<void> {
    const workerId = `grpc-worker-${++this.#workers}`;
    const { claimed, prepared, canceled } = this.#ledger;
    return async () => {
      const { jobs } = await this.#client.jobs.claimJobs({ workerId, limit: claimJobs });
      for (const { jobId } of jobs) claimed.set(jobId, workerId);
      for (const [i, { jobId }] of jobs.entries()) {
        const note = `${workerId} prepares ${jobId}`;
        await this.#client.jobs.updateJobStatus({ jobId, workerId, note, state: JobState.PREPARING });
        prepared.set(jobId, note);
        if (i % 2 === 0) continue;
        await this.#client.jobs.cancelJob({ jobId, reason: note });
        canceled.set(jobId, note);
      }
    };
  }

  #restWorker(): () => Promise<void> {
    const worker = `rest-worker-${++this.#workers}`;
    const { claimed, prepared, canceled } = this.#ledger;
    return async () => {
      const { body } = expectOk(await this.#client.rest('POST', `${path}/claim`, { worker_id: worker }));
      if (body === null) return;
      const jobId: string = body.job.job_id;
      claimed.set(jobId, worker);
      const note = `${worker} prepares ${jobId}`;
      const word = { state: 'PREPARING', worker_id: worker, note };
      expectOk(await this.#client.rest('POST', `${path}/${jobId}/status`, word));
      prepared.set(jobId, note);
      expectOk(await this.#client.rest('POST', `${path}/${jobId}/cancel`, { reason: note }));
      canceled.set(jobId, note);
    };
  }
}

export const submission = ({ key, jobType, costUnits, n }: Sent) => ({
  addonId: 'load',
  jobType,
  costUnits,
  payload: { n },
  clientRequestId: key,
});

function failureCode(error: unknown): string {
  if (error instanceof RestFailure) return error.code;
  const code = (error as NodeJS.ErrnoException).code;
  return typeof code === 'string' ? code : codeOf(error);
}
