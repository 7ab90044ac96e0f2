import { expect } from 'chai';
import { enqueueIdOf } from '../../../src/domain/streams/stream-message.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { until } from '../../support/process.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { first, idsOf, nameOf, openStage, type Stage } from '../../support/redis-stage.ts';

const key = 'leasehold:stream:s';

describeWithRedis('foreign content in a Redis stream', () => {
  onEveryEngine((engine) => {
    let stage: Stage;
    beforeEach(async () => {
      stage = await openStage(engine);
    });
    afterEach(() => stage.close());

    // Redis cannot distinguish copies of one embedded database, and tests use only copies.
    if (engine.name === 'postgresql')
      it('refuses a second database on the same Redis, and removes nothing', async () => {
        const envelopes = await stage.queue(3);
        const transport = await stage.transport();
        transport.send(envelopes);
        await stage.inLine();
        const before = await stage.entries();
        await using other = await engine.open();
        const stranger = stage.makeTransport({ database: other.database });
        await stranger.start();
        await until('it is told of', () => stage.lines.some(({ msg }) => msg.startsWith('Redis is away')));
        expect(stranger.state).to.equal('down');
        expect(await stranger.inspect()).to.include({ isForeign: true });
        await stranger.stop();
        expect(await stage.entries()).to.deep.equal(before);
        expect(transport.state).to.equal('up');
      });

    it('removes duplicates, other attempts, unknown jobs and garbage of any kind', async () => {
      const envelopes = await stage.queue(3);
      const transport = await stage.transport();
      transport.send(envelopes);
      await stage.inLine();
      const right = idsOf(await stage.entries());
      const { jobId } = first(envelopes);
      const unknown = newId();
      const strange: Record<string, string>[] = [
        { job_id: jobId, enqueue_id: `${jobId}:1` },
        { job_id: jobId, enqueue_id: `${jobId}:2` },
        { job_id: jobId, enqueue_id: `${jobId}:0` },
        { job_id: jobId, enqueue_id: `${jobId}:99999999999999999999` },
        { job_id: jobId, enqueue_id: `${jobId}:1.5` },
        { job_id: jobId, enqueue_id: '' },
        { job_id: jobId.toUpperCase(), enqueue_id: `${jobId.toUpperCase()}:1` },
        { job_id: unknown, enqueue_id: `${unknown}:1` },
        { job_id: "'; drop table jobs; --", enqueue_id: "'; drop table jobs; --:1" },
        { job_id: '', enqueue_id: ':1' },
        { enqueue_id: `${jobId}:1` },
        { anything: '\u0000\n"\\', __proto__x: '1' },
      ];
      for (const message of strange) await stage.client.xAdd(key, '*', message);
      await until('the right ones alone', async () => idsOf(await stage.entries()).join() === right.join());
      expect(await stage.isInLine()).to.equal(true);
      await until('right ones pending', async () => (await stage.pending()).get(transport.consumer) === 3);
      expect(stage.lines, 'complaints').to.deep.equal([]);
    });

    it('removes a message of a job that belongs to another stream', async () => {
      const transport = await stage.transport();
      const [own, others] = [await stage.queue(1), await stage.queue(1, 'other')];
      transport.send([...own, ...others]);
      await Promise.all([stage.inLine('s'), stage.inLine('other')]);
      const { jobId } = first(others);
      const unsent = first(await stage.queue(1, 'other')).jobId;
      await stage.client.xAdd(key, '*', { job_id: jobId, enqueue_id: `${jobId}:1` });
      await stage.client.xAdd(key, '*', { job_id: unsent, enqueue_id: `${unsent}:1` });
      await stage.inLine('s');
    });

    it('delays no other stream', async () => {
      await stage.client.set('leasehold:stream:broken', 'a text');
      const broken = await stage.queue(2, 'broken');
      const transport = await stage.transport();
      transport.send(broken);
      const envelopes = await stage.queue(2);
      transport.send(envelopes);
      await stage.inLine();
      await until('pending messages', async () => (await stage.pending()).get(transport.consumer) === 2);
      expect(await nameOf(transport, first(broken))).to.equal(enqueueIdOf(first(broken)));
      await stage.queue(3, 's', { plain: true });
      await stage.age();
      await transport.runOnce().catch(() => {});
      await until(
        'messages beside those that are sent in vain',
        async () => (await stage.entries()).length === 5,
      );
      await stage.client.del('leasehold:stream:broken');
      await stage.inLine('broken');
      await until('pending', async () => (await stage.pending('broken')).get(transport.consumer) === 2);
    });

    it('records an unrecorded message when it reads it, and does not remove it', async () => {
      const envelopes = await stage.queue(4);
      // The state that a server leaves which dies between sending and recording, unordered and with one
      // duplicate.
      for (const { jobId } of [...envelopes].reverse()) {
        await stage.client.xAdd(key, '*', { job_id: jobId, enqueue_id: `${jobId}:1` });
      }
      const { jobId } = first(envelopes);
      await stage.client.xAdd(key, '*', { job_id: jobId, enqueue_id: `${jobId}:1` });
      const transport = await stage.transport();
      await stage.inLine();
      expect(await stage.entries()).to.have.length(4);
      await until('pending messages', async () => (await stage.pending()).get(transport.consumer) === 4);
      const info = await stage.client.xInfoStream(key);
      expect(info['entries-added'], 'messages ever sent').to.equal(5);
    });

    it('removes foreign messages that a dead server had read, and takes over the rest', async () => {
      const envelopes = await stage.queue(6);
      const dead = await stage.transport();
      dead.send(envelopes);
      await stage.inLine();
      await until('pending messages', async () => (await stage.pending()).get(dead.consumer) === 6);
      await dead.stop();
      const unknown = newId();
      await stage.client.xAdd(key, '*', { job_id: unknown, enqueue_id: `${unknown}:1` });
      await stage.client.xReadGroup('leasehold', dead.consumer, { key, id: '>' });
      await stage.finish(envelopes.slice(0, 1));
      const next = await stage.transport({ silentMs: 0 });
      await next.runOnce();
      expect((await stage.pending()).get(dead.consumer), 'before it is long').to.equal(7);
      await stage.agePending();
      await next.runOnce();
      await stage.inLine();
      await until('taken over', async () => (await stage.pending()).get(next.consumer) === 5);
      await until('no dead consumer', async () => {
        await next.runOnce();
        const consumers = await stage.pending();
        return !consumers.has(dead.consumer) && !consumers.has('gone');
      });
    });
  });
});
