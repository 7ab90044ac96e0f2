/**
 * The guarantee: the message name that a claim returns stays right until the attempt has ended and
 * afterwards, on every server, whatever Redis loses and receives again. No other message's name is accepted.
 */
import { expect } from 'chai';
import type { Grant, Release } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import { enqueueIdOf } from '../../../src/domain/streams/stream-message.ts';
import {
  deleteLostMessages,
  inspectMessages,
  nowhere,
  recordMessages,
} from '../../../src/store/sql/streams/outbox.ts';
import { ownerKey } from '../../../src/transport/redis/keys.ts';
import type { RedisTransport } from '../../../src/transport/redis/transport.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquire, acquired, beatFor, codeOf, fetching, releaseFor } from '../../support/lease-helpers.ts';
import { until } from '../../support/process.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { first, openStage, type Stage } from '../../support/redis-stage.ts';

const foreign = '9-9';
const failure: Partial<Release> = { status: 'FAILED', error: 'no', retryable: true };
/** What a worker does with the attempt, and repeats if the answer was lost. */
const verbs: [string, Partial<Release>][] = [
  ['complete', {}],
  ['fail', failure],
];

describeWithRedis('the message name of a claim', () => {
  onEveryEngine((kind) => {
    let stage: Stage;
    let transports: RedisTransport[];
    /** Two servers on one database and one Redis, and one server without Redis. */
    let servers: TestedEngine[];
    let plain: TestedEngine;
    beforeEach(async () => {
      stage = await openStage(kind);
      transports = [await stage.transport(), await stage.transport()];
      servers = transports.map((transport) => engineOn(stage.database, undefined, undefined, transport));
      plain = engineOn(stage.database);
    });
    afterEach(async () => {
      await Promise.all([...servers, plain].map((server) => server.stop()));
      await stage.close();
    });

    const server = (number: number) => servers[number] as TestedEngine;
    const everywhere = () => [...servers, plain];
    const sweep = (number: number) => (transports[number] as RedisTransport).runOnce();
    const claim = (on: TestedEngine) => acquired(on, 'w', { streams: ['s'] });
    const rowNow = async () => first(await stage.rows());

    /** A job whose message both servers have recorded in Redis. */
    async function queued(): Promise<void> {
      await submitted(server(1), { stream: 's', max_attempts: 3, retry_backoff_s: 0 });
      await until('a message with a name', async () => (await rowNow()).messageId !== null);
    }

    const end = (on: TestedEngine, grant: Grant, messageId: string | null, more: Partial<Release> = {}) => {
      const message = { stream: 's', messageId };
      return codeOf(on.leases.end(releaseFor(grant, { message, ...more }), caller));
    };

    /** Every server accepts the name for the attempt, the first time and repeatedly, and no other name. */
    async function isRight(grant: Grant, more: Partial<Release>): Promise<void> {
      for (const one of everywhere())
        expect(await end(one, grant, foreign, more)).to.equal('message_mismatch');
      for (const one of everywhere()) expect(await end(one, grant, grant.messageId, more)).to.equal('ok');
      for (const one of everywhere()) {
        expect(await end(one, grant, enqueueIdOf({ ...grant.job, ...grant.lease }), more)).to.equal('ok');
        expect(await end(one, grant, foreign, more)).to.equal('message_mismatch');
      }
    }

    /** Ends the job; afterwards neither Redis nor the database holds a message. */
    async function nothingIsLeft(): Promise<void> {
      await until('no message', async () => {
        const next = await acquire(server(0), 'w', { streams: ['s'] });
        if (next.kind === 'granted') expect(await end(server(1), next, next.messageId)).to.equal('ok');
        await stage.agePending();
        await sweep(0);
        return (await stage.entries()).length === 0 && (await stage.rows()).length === 0;
      });
    }

    /**
     * Redis loses all messages and is marked again at once, so that servers notice only at their
     * reconciliation.
     */
    async function loseAll(): Promise<void> {
      const marker = first(await stage.client.keys('leasehold:marker:*'));
      const owner = (await stage.client.get(ownerKey)) ?? '';
      await stage.client.multi().flushDb().set(ownerKey, owner).set(marker, 'marked').exec();
    }

    /** The end of a reconciliation of another server, which had read the messages before. */
    async function sweepsOn(seen: Awaited<ReturnType<typeof inspectMessages>>, name: string): Promise<void> {
      for (const lost of await deleteLostMessages(stage.database, seen.found)) {
        await stage.client.xAdd('leasehold:stream:s', name, {
          job_id: lost.jobId,
          enqueue_id: enqueueIdOf(lost),
        });
        expect(await recordMessages(stage.database, [{ ...lost, messageId: name }])).to.deep.equal([
          { messageId: name },
        ]);
      }
    }

    for (const [verb, more] of verbs) {
      it(`accepts the name to ${verb} if Redis lost the message before the claim, then got it again`, async () => {
        await Promise.all([sweep(0), sweep(1)]);
        await queued();
        await loseAll();
        // Other servers are delayed between noticing the loss and sending the message again.
        await stage.client.sendCommand(['CLIENT', 'PAUSE', '60000', 'WRITE']);
        const swept = sweep(0);
        await until('the loss is noticed', async () => (await rowNow()).messageId === null);
        const grant = await claim(server(1));
        await stage.client.sendCommand(['CLIENT', 'UNPAUSE']);
        await swept;
        await until('it is sent again', async () => (await rowNow()).messageId !== null);
        await isRight(grant, more);
        await nothingIsLeft();
      });

      it(`accepts the name to ${verb} if the message was sent again during the claim`, async () => {
        await queued();
        const seen = await inspectMessages(stage.database, nowhere, 10);
        const grant = await claim(server(1));
        expect(grant.messageId).to.equal(first(seen.found).messageId);
        await stage.client.flushDb();
        await sweepsOn(seen, '9999999999999-1');
        // As if that had committed after the claim's statement began, and before it read the clock.
        await stage.age();
        await isRight(grant, more);
        await nothingIsLeft();
      });

      it(`accepts the name to ${verb} if Redis came back empty and got the message then`, async () => {
        await stage.redis.kill();
        await until('Redis is away', () => transports.every(({ state }) => state === 'down'));
        await submitted(server(1), { stream: 's', max_attempts: 3, retry_backoff_s: 0 });
        const grant = await claim(server(0));
        expect(grant.messageId).to.equal(enqueueIdOf(await rowNow()));
        expect(await end(server(0), grant, foreign, more)).to.equal('message_mismatch');
        await stage.redis.restart();
        await until('Redis is back', () => transports.every(({ state }) => state === 'up'));
        await stage.age();
        await sweep(1);
        await until('it is sent', async () => (await rowNow()).messageId !== null);
        await isRight(grant, more);
        await nothingIsLeft();
      });

      it(`accepts the name to ${verb} after another server's takeover and lost connections`, async () => {
        await queued();
        const grant = await claim(server(0));
        await until('it is read', async () => [...(await stage.pending()).values()].includes(1));
        await stage.client.sendCommand(['CLIENT', 'KILL', 'SKIPME', 'yes']);
        await until('servers are up again', () => transports.every(({ state }) => state === 'up'));
        await stage.agePending();
        await sweep(1);
        expect((await rowNow()).messageId).to.equal(grant.messageId);
        await isRight(grant, more);
        await nothingIsLeft();
      });
    }

    it('keeps a name with its claim if the grant was lost, and the message before the next claim', async () => {
      await queued();
      const lost = first(await fetching(server(0), 1, ['s']));
      await letTimePass(stage.database, limits.deliveryS * 1000 + 1);
      expect(await server(1).services.reaper.runOnce()).to.equal(1);
      await loseAll();
      await until('it is sent again', async () => {
        await sweep(0);
        const { messageId } = await rowNow();
        return messageId !== null && messageId !== lost.messageId;
      });
      const grant = await claim(server(1));
      expect(grant.lease.attempt).to.equal(lost.lease.attempt);
      expect(grant.messageId).to.equal((await rowNow()).messageId);
      for (const one of everywhere()) {
        expect(await end(one, lost, lost.messageId)).to.equal('lease_not_active');
        expect(await end(one, lost, foreign)).to.equal('message_mismatch');
      }
      await isRight(grant, {});
      await nothingIsLeft();
    });

    it('accepts the name on a server without Redis, which leaves the message to one with Redis', async () => {
      for (const [, more] of verbs) {
        await queued();
        const grant = await claim(server(0));
        expect(await end(plain, grant, foreign, more)).to.equal('message_mismatch');
        expect(await end(plain, grant, grant.messageId, more)).to.equal('ok');
        await isRight(grant, more);
        await nothingIsLeft();
      }
    });

    it("checks the name of an expired attempt, and after an operator's retry of the job", async () => {
      await submitted(server(1), { stream: 's', max_attempts: 1 });
      await until('a message with a name', async () => (await rowNow()).messageId !== null);
      const grant = await claim(server(0));
      await server(0).leases.heartbeat(beatFor(grant), caller);
      await letTimePass(stage.database, 60_001);
      expect(await server(1).services.reaper.runOnce()).to.equal(1);
      const late = async () => {
        for (const one of everywhere()) {
          expect(await end(one, grant, grant.messageId)).to.equal('lease_not_active');
          expect(await end(one, grant, foreign)).to.equal('message_mismatch');
        }
      };
      await late();
      await server(1).jobs.retry(grant.job.jobId, {}, caller);
      await late();
      await nothingIsLeft();
    });
  });
});
