import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import type { Envelope } from '../../../src/domain/streams/stream-message.ts';
import type { RedisTransport } from '../../../src/transport/redis/transport.ts';
import { engines, onEveryEngine } from '../../support/engines.ts';
import { until } from '../../support/process.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { nameOf, openStage, type Stage } from '../../support/redis-stage.ts';

/** A server's workload: jobs arrive, are granted, and end or are requeued, with their messages. */
async function work(stage: Stage, transport: RedisTransport, isOver: () => boolean): Promise<number> {
  let jobs = 0;
  let waiting: Envelope[] = [];
  while (!isOver()) {
    const come = await stage.queue(20);
    jobs += come.length;
    transport.send(come);
    const granted = [...waiting, ...come].filter(() => Math.random() < 0.6);
    await stage.grant(granted);
    const names = await Promise.all(granted.map((envelope) => nameOf(transport, envelope)));
    expect(names).to.not.include('');
    const ended = granted.filter(() => Math.random() < 0.7);
    transport.ack(await stage.finish(ended));
    const { settled, envelopes } = await stage.requeue(granted.filter((one) => !ended.includes(one)));
    transport.ack(settled);
    transport.send(envelopes);
    waiting = envelopes;
    await delay(5);
  }
  return jobs;
}

describeWithRedis('streams over a Redis that fails all the time', () => {
  onEveryEngine((engine) => {
    // This is the longest of these tests; one engine covers all of it.
    if (engine.name !== engines.at(-1)) return;
    let stage: Stage;
    beforeEach(async () => {
      stage = await openStage(engine);
    });
    afterEach(() => stage.close());

    it('brings Redis in line with the database, with two servers and one that dies', async function () {
      this.timeout(120_000);
      const transports = [await stage.transport(), await stage.transport()];
      let isOver = false;
      const days = Promise.all(transports.map((transport) => work(stage, transport, () => isOver)));
      const isUp = () => transports.every(({ state }) => state === 'up');
      const harms: (() => Promise<unknown>)[] = [
        () => stage.client.flushAll(),
        () => stage.redis.restart(),
        () => stage.client.xTrim('leasehold:stream:s', 'MAXLEN', 10),
        () => stage.client.del('leasehold:stream:s'),
        async () => {
          stage.redis.pause();
          await until('a hanging Redis noticed', () => !isUp());
          stage.redis.resume();
        },
        () => stage.client.xGroupDestroy('leasehold:stream:s', 'leasehold'),
        () => stage.client.xAdd('leasehold:stream:s', '*', { job_id: 'x', enqueue_id: 'y' }),
      ];
      for (const harm of [...harms, ...harms]) {
        await until('servers that are up', isUp);
        await delay(Math.random() * 200);
        await harm();
      }
      isOver = true;
      const jobs = await days;
      expect(Math.min(...jobs)).to.be.above(100);
      await transports[0]?.stop();
      await until('servers that are up', () => transports[1]?.state === 'up');
      await stage.age();
      await until(
        'in line',
        async () => {
          if (await stage.isInLine()) return true;
          await stage.agePending();
          await transports[1]?.runOnce();
          return false;
        },
        60_000,
      );
      const unsent = (await stage.rows()).filter(({ messageId }) => messageId === null);
      expect(unsent).to.deep.equal([]);
    });
  });
});
