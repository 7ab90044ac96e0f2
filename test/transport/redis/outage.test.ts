import { expect } from 'chai';
import { enqueueIdOf } from '../../../src/domain/streams/stream-message.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { until } from '../../support/process.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { first, nameOf, openStage, type Stage } from '../../support/redis-stage.ts';

/**
 * A call that waits for an unresponsive Redis takes a second and a half; the rest is a margin for a busy
 * machine.
 */
const promptMs = 1_450;

/** The duration of a call. */
async function timed(work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

describeWithRedis('the transport during failures of Redis', () => {
  onEveryEngine((engine) => {
    let stage: Stage;
    beforeEach(async () => {
      stage = await openStage(engine);
    });
    afterEach(() => stage.close());

    const told = (word: string) => stage.lines.filter(({ msg }) => msg.includes(word)).length;

    it('counts a full Redis as down, and sends all messages when it has memory again', async () => {
      const transport = await stage.transport();
      await stage.client.configSet('maxmemory', '1');
      transport.send(await stage.queue(5));
      await until('it counts as down', () => transport.state === 'down');
      await stage.client.configSet('maxmemory', '0');
      await until('all are sent', async () => {
        await transport.runOnce().catch(() => {});
        return (await stage.entries()).length === 5;
      });
      expect(transport.state).to.equal('up');
    });

    it('does not count Redis as full because a connection failed with messages in flight', async () => {
      const transport = await stage.transport();
      await stage.client.sendCommand(['CLIENT', 'PAUSE', '60000', 'WRITE']);
      const envelopes = await stage.queue(5);
      transport.send(envelopes);
      // Either these messages are delayed themselves, or they wait behind delayed ones.
      await until('the messages are on their way', async () =>
        /name=leasehold .*(qbuf=[1-9]|cmd=xadd)/.test(
          String(await stage.client.sendCommand(['CLIENT', 'LIST'])),
        ),
      );
      // No message is left to be sent, which would show that Redis accepts messages.
      await stage.finish(envelopes);
      await stage.client.sendCommand(['CLIENT', 'KILL', 'SKIPME', 'yes']);
      await until('the loss is noticed', () => told('is away') > 0);
      await stage.client.sendCommand(['CLIENT', 'UNPAUSE']);
      await until('up', () => transport.state === 'up');
    });

    it('sends all messages again within 10 s of a loss, except those of running attempts', async function () {
      this.timeout(60_000);
      const [a, b] = [await stage.transport(), await stage.transport()];
      const envelopes = await stage.queue(2_000);
      a.send(envelopes);
      await stage.inLine();
      const running = envelopes.slice(0, 10);
      await stage.grant(running);
      const took = await timed(async () => {
        await stage.client.flushAll();
        await until('all that wait', async () => (await stage.entries()).length === 1_990, 10_000);
      });
      expect(took).to.be.below(10_000);
      const both = async () => {
        const pending = await stage.pending();
        return (pending.get(a.consumer) ?? 0) + (pending.get(b.consumer) ?? 0);
      };
      await until('pending messages', async () => (await both()) === 1_990);
      a.ack(await stage.finish(running));
      await stage.inLine();
      const info = await stage.client.xInfoStream('leasehold:stream:s');
      expect(info['entries-added'], 'messages sent again').to.equal(1_990);
      await until('a line that tells of it', () => told('had lost its messages') > 0);
      expect(told('had lost its messages'), 'lines that tell of it').to.equal(1);
    });

    it('detects the loss of all messages without the periodic comparison', async () => {
      const transport = await stage.transport();
      const envelopes = await stage.queue(4_000);
      transport.send(envelopes);
      await stage.inLine();
      await stage.grant(envelopes.slice(0, 3_900));
      await stage.client.flushAll();
      // A run that began earlier proves nothing; a run requested after the loss has begun after it.
      await transport.runOnce();
      await transport.runOnce();
      expect(await stage.entries()).to.have.length(100);
      await until('pending messages', async () => (await stage.pending()).get(transport.consumer) === 100);
    });

    it('sends a few lost messages again at the periodic comparison', async () => {
      const transport = await stage.transport();
      transport.send(await stage.queue(600));
      await stage.inLine();
      const lost = (await stage.entries()).slice(100, 300).map(({ id }) => id);
      await stage.client.xDel('leasehold:stream:s', lost);
      await transport.runOnce();
      await transport.runOnce();
      await stage.inLine('s', 10_000);
    });

    it('asks Redis for the message itself if its lost name now belongs to another message', async () => {
      const transport = await stage.transport();
      transport.send(await stage.queue(1));
      await stage.inLine();
      const { id } = first(await stage.entries());
      const other = first(await stage.queue(1));
      const message = { job_id: other.jobId, enqueue_id: enqueueIdOf(other) };
      await stage.client.multi().flushDb().xAdd('leasehold:stream:s', id, message).exec();
      await until('both messages', async () => {
        await transport.runOnce();
        return (await stage.isInLine()) && (await stage.entries()).length === 2;
      });
    });

    it('survives a Redis that is killed and comes back empty, with writes in between', async function () {
      this.timeout(60_000);
      const transport = await stage.transport();
      const envelopes = await stage.queue(500);
      transport.send(envelopes);
      await stage.inLine();
      await stage.redis.kill();
      await until('down', () => transport.state === 'down');
      const more = await stage.queue(300);
      transport.send(more);
      transport.ack(await stage.finish(envelopes.slice(0, 100)));
      expect(await nameOf(transport, first(more))).to.equal(enqueueIdOf(first(more)));
      await stage.redis.restart();
      await until('up', () => transport.state === 'up');
      await stage.inLine('s', 10_000);
      expect(await stage.entries()).to.have.length(700);
      await until('pending messages', async () => (await stage.pending()).get(transport.consumer) === 700);
      expect(told('is away'), 'lines that say it is away').to.equal(1);
      expect(told('is back'), 'lines that say it is back').to.equal(1);
    });

    it('starts without Redis, and uses it once it is available', async () => {
      await stage.redis.kill();
      const transport = stage.makeTransport();
      expect(await timed(() => transport.start())).to.be.below(promptMs);
      expect(transport.state).to.equal('down');
      const envelopes = await stage.queue(2);
      transport.send(envelopes);
      expect(await nameOf(transport, first(envelopes))).to.equal(enqueueIdOf(first(envelopes)));
      await transport.runOnce();
      await stage.redis.restart();
      await until('up', () => transport.state === 'up');
      await stage.inLine();
      expect(told('is away')).to.equal(1);
    });

    it('blocks no call while Redis hangs', async function () {
      this.timeout(60_000);
      const transport = await stage.transport();
      const sent = await stage.queue(50);
      transport.send(sent);
      await stage.inLine();
      stage.redis.pause();
      const envelopes = await stage.queue(20);
      transport.send(envelopes);
      transport.ack(await stage.finish(sent.slice(0, 5)));
      const one = first(envelopes);
      let name = '';
      const took = await timed(async () => {
        name = await nameOf(transport, one);
      });
      // Redis gets half as long again before the transport gives it up.
      expect(took, 'ms to name a message').to.be.below(promptMs);
      expect(name).to.equal(enqueueIdOf(one));
      await until('down', () => transport.state === 'down', 5_000);
      expect(await timed(() => nameOf(transport, one))).to.be.below(promptMs);
      expect(await timed(() => transport.runOnce())).to.be.below(promptMs);
      stage.redis.resume();
      await until('up', () => transport.state === 'up', 30_000);
      // Messages in flight at the hang may have been stored without an answer; the next reconciliation
      // removes them.
      await until('in line', async () => {
        if (await stage.isInLine()) return true;
        await stage.agePending();
        await transport.runOnce().catch(() => {});
        return false;
      });
      expect(await stage.entries()).to.have.length(65);
    });

    it('stops in time while Redis hangs', async () => {
      const transport = await stage.transport();
      transport.send(await stage.queue(50));
      await stage.inLine();
      stage.redis.pause();
      transport.send(await stage.queue(50));
      expect(await timed(() => transport.stop())).to.be.below(promptMs);
      expect(transport.state).to.equal('down');
      await transport.stop();
    });

    it('sends messages in flight before it stops, and nothing afterwards', async () => {
      const transport = await stage.transport();
      const envelopes = await stage.queue(1_000);
      transport.send(envelopes);
      expect(await timed(() => transport.stop())).to.be.below(promptMs);
      expect(await stage.isInLine()).to.equal(true);
      transport.send(await stage.queue(1));
      transport.ack([{ stream: 's', messageId: '1-1' }]);
      expect(await nameOf(transport, first(envelopes))).to.equal(enqueueIdOf(first(envelopes)));
      const clients = String(await stage.client.sendCommand(['CLIENT', 'LIST']));
      expect(clients).to.not.include('name=leasehold');
    });

    it('marks Redis, so that a loss of all data is detected', async () => {
      const transport = await stage.transport();
      await transport.runOnce();
      const marker = first(await stage.client.keys('leasehold:marker:*'));
      expect(await stage.client.ttl(marker), 'a marker that stays').to.equal(-1);
    });
  });
});
