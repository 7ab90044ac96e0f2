/**
 * Workers of the worker contract that continue through all faults of servers and Redis, and the checks of
 * their work at the end.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import type { Database } from '../../src/store/database.ts';
import { endedLeases } from '../support/history.ts';
import { type Answer, connect } from '../support/server-clients.ts';

const pauseMs = 20;

interface Place {
  http: string;
  grpc: string;
}

export interface MillOptions {
  stream: string;
  workers: number;
  /** The current addresses of the servers; each worker calls one of them. */
  servers(): readonly Place[];
  /** Longer than a lease lasts without a heartbeat. */
  stallMs: number;
}

/** The answer to a claim. */
interface Claim {
  job_id: string;
  attempt_id: string;
  lease_token: string;
  stream: { name: string; message_id: string };
}

type Client = ReturnType<typeof connect>;

export class Mill {
  /** Completions that were acknowledged with `ok`, by job. */
  readonly completed = new Map<string, number>();
  /** Answers that no server may return. */
  readonly problems: string[] = [];
  /** Stale attempts that were refused, with the permission to acknowledge their message. */
  stale = 0;
  readonly #options: MillOptions;
  readonly #clients = new Map<string, Client>();
  readonly #workers: Promise<void>[];
  #turn = 0;
  #stopped = false;

  constructor(options: MillOptions) {
    this.#options = options;
    this.#workers = Array.from({ length: options.workers }, (_, number) => this.#work(`worker-${number}`));
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#workers);
    for (const client of this.#clients.values()) client.close();
  }

  async #work(worker: string): Promise<void> {
    while (!this.#stopped) {
      const claim = await this.#ask('claim', {
        worker_id: worker,
        streams: [this.#options.stream],
        max_wait_ms: 500,
      });
      if (claim?.body?.claimed) await this.#serve(worker, claim.body);
      else if (claim?.status !== 200) await delay(pauseMs);
    }
  }

  /** Most jobs are completed, some fail and may be retried, and some workers sleep past the expiry. */
  async #serve(worker: string, claim: Claim): Promise<void> {
    const { job_id, attempt_id, lease_token, stream } = claim;
    const { name, message_id } = stream;
    const owner = { worker_id: worker, job_id, attempt_id, lease_token, stream: name, message_id };
    const turn = this.#turn++;
    if (turn % 11 === 5) await delay(this.#options.stallMs);
    const isFailure = turn % 7 === 3;
    const error = { code: 'E_SOON', message: 'not yet', retryable: true };
    const answer = isFailure
      ? await this.#insist('fail', { ...owner, error })
      : await this.#insist('complete', { ...owner, result: { by: attempt_id } });
    const { status, body } = answer;
    if (status === 200 && body.ok && body.ack) {
      if (!isFailure) this.completed.set(job_id, (this.completed.get(job_id) ?? 0) + 1);
    } else if (status === 409 && body.ok === false && body.ack && body.code === 'lease_not_active') {
      this.stale++;
    } else this.problems.push(`${isFailure ? 'fail' : 'complete'}: ${status} ${JSON.stringify(body)}`);
  }

  /** Repeats a call until there is an answer, like a worker whose answer was lost. */
  async #insist(verb: string, body: object): Promise<Answer> {
    for (;;) {
      const answer = await this.#ask(verb, body);
      if (answer && answer.status < 500) return answer;
      await delay(pauseMs);
    }
  }

  /** Returns nothing if no server is there, or if the called server died during the call. */
  async #ask(verb: string, body: object): Promise<Answer | undefined> {
    const servers = this.#options.servers();
    const place = servers[Math.floor(Math.random() * servers.length)];
    if (!place) return undefined;
    const client = this.#clients.get(place.http) ?? connect(place);
    this.#clients.set(place.http, client);
    try {
      return await client.rest('POST', `/internal/worker/${verb}`, body);
    } catch {
      return undefined;
    }
  }
}

/** Every job is done by one attempt, which is the one that its worker was granted. */
export async function checkEnds(database: Database, jobIds: readonly string[], mill: Mill): Promise<void> {
  const rows = await database.query<{
    job_id: string;
    state: string;
    ends: number;
    successes: number;
    by: string;
  }>(
    `select job.job_id, outcome.result->>'by' as by,
      (select count(*)::int from job_events event where event.job_id = job.job_id and event.type = 11) as ends,
      (select count(*)::int from ${endedLeases} where ended_leases.job_id = job.job_id and release_status = 0) as successes,
      (select lease_id::text from ${endedLeases} where ended_leases.job_id = job.job_id and release_status = 0) as winner
    from jobs job left join job_outcomes outcome on outcome.job_id = job.job_id
    where job.job_id = any ($1::uuid[])`,
    [`{${jobIds.join(',')}}`],
  );
  expect(mill.problems).to.deep.equal([]);
  expect(rows).to.have.length(jobIds.length);
  for (const row of rows) {
    expect(row, row.job_id).to.include({ ends: 1, successes: 1 });
    expect(row.by).to.equal((row as unknown as { winner: string }).winner);
    expect(mill.completed.get(row.job_id), `completions of ${row.job_id} that were acknowledged`).to.equal(1);
  }
}
