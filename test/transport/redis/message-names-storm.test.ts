/**
 * The guarantee: while Redis loses all data again and again, both servers accept the name that a claim
 * returned for the attempt's message, and no other. In the end no message is left.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import { openDatabase } from '../../../src/store/open.ts';
import type { RedisTransport } from '../../../src/transport/redis/transport.ts';
import { engines, onEveryEngine } from '../../support/engines.ts';
import { caller, engineOn, engineSettings, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquire, codeOf, releaseFor } from '../../support/lease-helpers.ts';
import { until } from '../../support/process.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { openStage, type Stage } from '../../support/redis-stage.ts';

const stormMs = 5_000;
const workers = 12;
const settings = { ...engineSettings, capacityTotal: 1_000 };

const oneOf = <T>(values: readonly T[]): T => values[Math.floor(Math.random() * values.length)] as T;

/** Two servers, and workers that call one or the other. */
class Storm {
  /** Answers that no server may return. */
  readonly problems: string[] = [];
  completed = 0;
  failed = 0;
  isOver = false;
  readonly #servers: readonly TestedEngine[];

  constructor(servers: readonly TestedEngine[]) {
    this.#servers = servers;
  }

  async submit(): Promise<void> {
    while (!this.isOver) {
      await submitted(oneOf(this.#servers), { stream: 's', max_attempts: 1_000, retry_backoff_s: 0 });
      await delay(Math.random() * 10);
    }
  }

  /** Works until the storm has ended and no job waits. */
  async work(worker: string): Promise<void> {
    for (;;) {
      const isLast = this.isOver;
      const claim = await acquire(oneOf(this.#servers), worker, { streams: ['s'] });
      if (claim.kind === 'granted') await this.#serve(claim);
      else if (isLast) return;
      else await delay(5);
    }
  }

  async #serve(grant: Grant): Promise<void> {
    await delay(Math.random() * 40);
    const isFailure = !this.isOver && Math.random() < 0.3;
    const verb = isFailure ? 'fail' : 'complete';
    const end = async (messageId: string | null, wanted: string) => {
      const message = { stream: 's', messageId };
      const how = isFailure ? { status: 'FAILED', error: 'no', retryable: true } : {};
      const release = releaseFor(grant, { message, ...(how as object) });
      const code = await codeOf(oneOf(this.#servers).leases.end(release, caller));
      if (code !== wanted) this.problems.push(`${verb} of ${grant.messageId} as ${messageId}: ${code}`);
    };
    if (Math.random() < 0.2) await end('9-9', 'message_mismatch');
    await end(grant.messageId, 'ok');
    if (Math.random() < 0.5) await end(grant.messageId, 'ok');
    if (Math.random() < 0.2) await end('9-9', 'message_mismatch');
    if (isFailure) this.failed++;
    else this.completed++;
  }
}

describeWithRedis('the names of messages in a Redis that is flushed all the time', () => {
  onEveryEngine((kind) => {
    // Two servers cannot share an embedded database.
    if (kind.name !== engines.at(-1)) return;
    let stage: Stage;
    beforeEach(async () => {
      stage = await openStage(kind);
    });
    afterEach(() => stage.close());

    it('keeps message names right on both servers for every completed or failed attempt', async function () {
      this.timeout(60_000);
      const databases = [await openDatabase(stage.store.options), await openDatabase(stage.store.options)];
      const transports: RedisTransport[] = [];
      for (const database of databases) transports.push(await stage.transport({ database }));
      const servers = databases.map((database, i) => engineOn(database, settings, undefined, transports[i]));
      const storm = new Storm(servers);
      try {
        const sweep = async (transport: RedisTransport) => {
          while (!storm.isOver) {
            await transport.runOnce();
            await delay(Math.random() * 20);
          }
        };
        const flush = async () => {
          const ends = performance.now() + stormMs;
          while (performance.now() < ends) {
            await delay(20 + Math.random() * 80);
            await stage.client.flushDb();
          }
          storm.isOver = true;
        };
        await Promise.all([
          storm.submit(),
          storm.submit(),
          ...Array.from({ length: workers }, (_, i) => storm.work(`worker-${i}`)),
          ...transports.map(sweep),
          flush(),
        ]);
        expect(storm.problems).to.deep.equal([]);
        expect(Math.min(storm.completed, storm.failed)).to.be.above(20);
        const [again] = await stage.database.query<{ count: number }>(
          `select count(*)::int as count from (
            select message_ids from job_outcomes union all select message_ids from leases
          ) attempts where cardinality(message_ids) > 1`,
          [],
        );
        expect(again?.count, 'attempts whose message was sent again').to.be.above(0);
        await until('no message', async () => {
          await stage.agePending();
          for (const transport of transports) await transport.runOnce();
          return (await stage.rows()).length === 0 && (await stage.entries()).length === 0;
        });
      } finally {
        storm.isOver = true;
        await Promise.all(servers.map((server) => server.stop()));
        await Promise.all(transports.map((transport) => transport.stop()));
        await Promise.all(databases.map((database) => database.close()));
      }
    });
  });
});
