/**
 * A database, a Redis and the transports between them, with what an engine would do to jobs of streams written out as
 * plain statements.
 */
import type { RedisClientType } from '@redis/client';
import { expect } from 'chai';
import { stateNumber } from '../../src/domain/jobs/state-machine.ts';
import { type Envelope, enqueueIdOf, type SentMessage } from '../../src/domain/streams/stream-message.ts';
import { createLog, type Log } from '../../src/lib/log.ts';
import { newId } from '../../src/lib/uuid.ts';
import type { Sql } from '../../src/store/connection/sql.ts';
import type { Database } from '../../src/store/database.ts';
import { keepLanes, type LaneTarget, laneText } from '../../src/store/sql/queue/lanes.ts';
import { ackMessages, addMessages, sentAmong } from '../../src/store/sql/streams/messages.ts';
import { RedisTransport, type RedisTransportOptions } from '../../src/transport/redis/transport.ts';
import type { TestDatabase, TestEngine } from './engines.ts';
import { until } from './process.ts';
import { startRedis, type TestRedis } from './redis.ts';
import type { LogLine } from './server.ts';

export interface Row extends Envelope {
  messageId: string | null;
}

export interface Entry {
  id: string;
  message: Record<string, string>;
}

export class Stage {
  readonly store: TestDatabase;
  readonly redis: TestRedis;
  /** The test's own connection to Redis. */
  readonly client: RedisClientType;
  readonly lines: LogLine[] = [];
  readonly log: Log = createLog({
    level: 'info',
    human: false,
    write: (line) => void this.lines.push(JSON.parse(line) as LogLine),
  });
  readonly #transports: RedisTransport[] = [];

  /** Use `openStage()`. */
  constructor(store: TestDatabase, redis: TestRedis, client: RedisClientType) {
    this.store = store;
    this.redis = redis;
    this.client = client;
  }

  get database(): Database {
    return this.store.database;
  }

  /** A transport that is up and was stopped by nobody else, when the stage closes. */
  async transport(options: Partial<RedisTransportOptions> = {}): Promise<RedisTransport> {
    const transport = this.makeTransport(options);
    await transport.start();
    await until('a transport that is up', () => transport.state === 'up');
    return transport;
  }

  makeTransport(options: Partial<RedisTransportOptions> = {}): RedisTransport {
    const { database, log } = this;
    const transport = new RedisTransport({ url: this.redis.url, database, log, ...options });
    this.#transports.push(transport);
    return transport;
  }

  /** Submits jobs to a stream, in the order of their ids, with the rows of their messages unless `plain`. */
  async queue(count: number, stream = 's', { plain = false } = {}): Promise<Envelope[]> {
    return this.database.transaction(async (sql) => {
      const lane = { stream, addonId: 'a', jobType: 't', requires: [], heavy: [], unique: false };
      const places = await keepLanes(sql, new Map([[laneText(lane), lane]]));
      const ids = Array.from({ length: count }, () => newId());
      await insertJobs(sql, ids, stream, (places.get(laneText(lane)) as LaneTarget).laneId);
      if (!plain) await addMessages(sql, ids);
      return ids.map((jobId) => ({ jobId, stream, attempt: 1 }));
    });
  }

  /** Gives jobs to a worker. */
  async grant(jobs: readonly Envelope[]): Promise<void> {
    await this.database.query(
      'update live_jobs set state = $2, attempts = attempts + 1 where job_id = any ($1::uuid[])',
      [jobs.map(({ jobId }) => jobId), stateNumber('RUNNING')],
    );
  }

  /** Ends jobs for good. */
  async finish(jobs: readonly Envelope[]): Promise<SentMessage[]> {
    const ids = jobs.map(({ jobId }) => jobId);
    return this.database.transaction(async (sql) => {
      await sql.query('delete from live_jobs where job_id = any ($1::uuid[])', [ids]);
      return sentAmong(await ackMessages(sql, ids));
    });
  }

  /** Ends the attempts of granted jobs and queues the next. */
  async requeue(jobs: readonly Envelope[]): Promise<{ settled: SentMessage[]; envelopes: Envelope[] }> {
    const ids = jobs.map(({ jobId }) => jobId);
    return this.database.transaction(async (sql) => {
      await sql.query('update live_jobs set state = $2 where job_id = any ($1::uuid[])', [
        ids,
        stateNumber('QUEUED'),
      ]);
      const settled = sentAmong(await ackMessages(sql, ids));
      return { settled, envelopes: await addMessages(sql, ids) };
    });
  }

  async rows(): Promise<Row[]> {
    return this.database.query<Row>(
      `select job_id as "jobId", stream, attempt, message_id as "messageId" from stream_messages order by job_id`,
      [],
    );
  }

  /** Makes the rows older than they are, as if they had been written long ago. */
  async age(): Promise<void> {
    await this.database.query("update stream_messages set written_at = written_at - interval '1 hour'", []);
  }

  async entries(stream = 's'): Promise<Entry[]> {
    return (await this.client.xRange(`leasehold:stream:${stream}`, '-', '+')) ?? [];
  }

  /** How many messages are pending, by consumer. */
  async pending(stream = 's'): Promise<Map<string, number>> {
    const key = `leasehold:stream:${stream}`;
    // Until somebody reads the stream it has no group.
    const consumers = await this.client.xInfoConsumers(key, 'leasehold').catch(() => []);
    return new Map(consumers.map(({ name, pending }) => [name, pending]));
  }

  /** Makes every message as if it had been read long ago by a server that is gone. */
  async agePending(stream = 's'): Promise<void> {
    const key = `leasehold:stream:${stream}`;
    const ids = idsOf(await this.entries(stream));
    if (ids.length === 0) return;
    const claim = ['XCLAIM', key, 'leasehold', 'gone', '0', ...ids, 'IDLE', '60000'];
    // Where the group was deleted, everything is read anew anyhow.
    await this.client.sendCommand(claim).catch(() => {});
  }

  /** Whether each row has its message, and each message its row. */
  async isInLine(stream = 's'): Promise<boolean> {
    const rows = (await this.rows()).filter((row) => row.stream === stream);
    const wanted = rows.map((row) => `${row.messageId} ${row.jobId} ${enqueueIdOf(row)}`);
    const found = (await this.entries(stream)).map(
      ({ id, message }) => `${id} ${message.job_id} ${message.enqueue_id}`,
    );
    return JSON.stringify(wanted.sort()) === JSON.stringify(found.sort());
  }

  async inLine(stream = 's', limitMs?: number): Promise<void> {
    await until('a stream in line with the database', () => this.isInLine(stream), limitMs);
  }

  async close(): Promise<void> {
    this.redis.resume();
    await Promise.all(this.#transports.map((transport) => transport.stop()));
    await this.redis.stop();
    await this.store.close();
  }
}

async function insertJobs(sql: Sql, ids: string[], stream: string, laneId: number): Promise<void> {
  await sql.query(
    `insert into jobs (job_id, seq, lane_id, addon_id, job_type, stream, priority, cost_units, constraints, payload,
      is_unique, tags, max_attempts, retry_backoff_s, bytes, created_at)
    select job_id, nextval('job_events_event_id_seq'), $3, 'a', 't', $2, 1, 1, '{}', '{}', false, '{}', 3, 2, 4, clock_timestamp()
    from unnest($1::uuid[]) as job_id`,
    [ids, stream, laneId],
  );
  await sql.query(
    `insert into live_jobs (job_id, seq, lane_id, priority, cost_units, bytes, state, attempts, attempts_limit,
      claims_lost, cancel_requested, updated_at)
    select job_id, seq, lane_id, priority, cost_units, bytes, $2, 0, 3, 0, false, created_at
    from jobs where job_id = any ($1::uuid[])`,
    [ids, stateNumber('QUEUED')],
  );
}

export async function openStage(engine: TestEngine): Promise<Stage> {
  const [store, redis] = await Promise.all([engine.open(), startRedis()]);
  return new Stage(store, redis, await redis.client());
}

/** What the worker of a job is told whose message had no name when it was granted. */
export const nameOf = async (transport: RedisTransport, envelope: Envelope): Promise<string> =>
  first(await transport.namesOf([{ ...envelope, messageId: null }]));

export const idsOf = (entries: readonly Entry[]): string[] => entries.map(({ id }) => id);

export function first<T>(values: readonly T[]): T {
  expect(values).to.not.be.empty;
  return values[0] as T;
}
