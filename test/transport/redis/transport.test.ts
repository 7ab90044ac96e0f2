import { expect } from 'chai';
import { type Envelope, enqueueIdOf } from '../../../src/domain/streams/stream-message.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { until } from '../../support/process.ts';
import { describeWithRedis } from '../../support/redis.ts';
import { first, nameOf, openStage, type Stage } from '../../support/redis-stage.ts';

describeWithRedis('the transport over Redis', () => {
  onEveryEngine((engine) => {
    let stage: Stage;
    beforeEach(async () => {
      stage = await openStage(engine);
    });
    afterEach(() => stage.close());

    it("sends messages with the contract's two fields, records them, and reads them as pending", async () => {
      const transport = await stage.transport();
      const envelopes = await stage.queue(3);
      transport.send(envelopes);
      await stage.inLine();
      const messages = (await stage.entries()).map(({ message }) => ({ ...message }));
      expect(messages).to.have.deep.members(
        envelopes.map(({ jobId }) => ({ job_id: jobId, enqueue_id: `${jobId}:1` })),
      );
      await until('pending messages', async () => (await stage.pending()).get(transport.consumer) === 3);
    });

    it('acknowledges and deletes messages of ended attempts, and sends new ones for the next', async () => {
      const transport = await stage.transport();
      const envelopes = await stage.queue(4);
      transport.send(envelopes);
      await stage.inLine();
      await until('pending messages', async () => (await stage.pending()).get(transport.consumer) === 4);
      const before = await stage.entries();
      const [ended, repeated, waiting] = [envelopes.slice(0, 1), envelopes.slice(1, 2), envelopes.slice(2)];
      await stage.grant([...ended, ...repeated]);
      transport.ack(await stage.finish(ended));
      const again = await stage.requeue(repeated);
      transport.ack(again.settled);
      transport.send(again.envelopes);
      await until('the next attempt', async () => {
        const told = (await stage.entries()).map(({ message }) => message.enqueue_id);
        const wanted = [...waiting, ...again.envelopes].map(enqueueIdOf);
        return JSON.stringify(told) === JSON.stringify(wanted);
      });
      const left = await stage.client.xPendingRange('leasehold:stream:s', 'leasehold', '-', '+', 10);
      const settled = new Set(
        [...before]
          .filter(
            ({ message }) => message.job_id !== waiting[0]?.jobId && message.job_id !== waiting[1]?.jobId,
          )
          .map(({ id }) => id),
      );
      expect(settled.size).to.equal(2);
      expect(
        left.filter(({ id }) => settled.has(id)),
        'settled messages that are pending',
      ).to.deep.equal([]);
      await stage.inLine();
    });

    it('names messages by their Redis id, for every sender and every request', async () => {
      const [a, b] = [await stage.transport(), await stage.transport()];
      const envelopes = await stage.queue(20);
      a.send(envelopes);
      const namesOf = async (envelope: Envelope) =>
        Promise.all([nameOf(a, envelope), nameOf(b, envelope), nameOf(a, envelope)]);
      // On a busy machine this may take longer than a grant waits for a name.
      let names: string[][] = [];
      await until('names given by Redis', async () => {
        names = await Promise.all(envelopes.map(namesOf));
        return names.flat().every((name) => /^\d+-\d+$/.test(name));
      });
      const rows = new Map((await stage.rows()).map((row) => [row.jobId, row.messageId]));
      envelopes.forEach(({ jobId }, i) => {
        const name = rows.get(jobId);
        expect(names[i]).to.deep.equal([name, name, name]);
      });
      const known = await a.namesOf([
        { ...first(envelopes), messageId: '7-0' },
        { ...first(envelopes), messageId: null },
      ]);
      expect(known, 'a name that was known, and one that was not').to.deep.equal(['7-0', names[0]?.[0]]);
      await stage.inLine();
    });

    it('removes a message whose attempt ended before it was recorded', async () => {
      const transport = await stage.transport();
      const envelopes = await stage.queue(5);
      await stage.finish(envelopes);
      const left = await stage.queue(1);
      transport.send([...envelopes, ...left]);
      await stage.inLine();
      expect(await stage.entries()).to.have.length(1);
      expect(await nameOf(transport, first(envelopes))).to.equal(enqueueIdOf(first(envelopes)));
    });

    it('sends messages that a dead server committed and did not send', async () => {
      await stage.queue(1_200);
      const transport = await stage.transport();
      await transport.runOnce();
      expect(await stage.entries(), 'rows that somebody may just be sending').to.have.length(0);
      await stage.age();
      await transport.runOnce();
      await stage.inLine('s', 10_000);
      expect(await stage.entries()).to.have.length(1_200);
    });

    it('creates messages for jobs that were queued while no messages were kept', async () => {
      const [plain, other] = [await stage.queue(700, 's', { plain: true }), await stage.queue(3, 'other')];
      const transport = await stage.transport();
      transport.send(other);
      await transport.runOnce();
      await stage.inLine('s', 10_000);
      await stage.inLine('other');
      expect((await stage.entries()).map(({ message }) => message.job_id)).to.have.members(
        plain.map(({ jobId }) => jobId),
      );
    });

    it('removes messages and rows of attempts that ended while no messages were kept', async () => {
      const transport = await stage.transport();
      const envelopes = await stage.queue(3);
      transport.send(envelopes);
      await stage.inLine();
      await transport.stop();
      const [over, again] = envelopes.map(({ jobId }) => jobId);
      await stage.database.query('delete from live_jobs where job_id = $1', [over]);
      await stage.database.query('update live_jobs set attempts = 1 where job_id = $1', [again]);
      const next = await stage.transport();
      await next.runOnce();
      await until('a message for the second attempt', async () => {
        await next.runOnce();
        const rows = (await stage.rows()).map(enqueueIdOf);
        return rows.length === 2 && rows.includes(`${again}:2`);
      });
      await stage.inLine();
    });

    it('sends no message twice if servers reconcile at the same time', async () => {
      await stage.queue(1_500);
      await stage.queue(500, 's', { plain: true });
      await stage.age();
      const transports = await Promise.all([stage.transport(), stage.transport(), stage.transport()]);
      await Promise.all(transports.map((transport) => transport.runOnce()));
      await until('all of them', async () => (await stage.entries()).length === 2_000);
      await stage.inLine();
      const info = await stage.client.xInfoStream('leasehold:stream:s');
      expect(info['entries-added'], 'messages ever sent').to.equal(2_000);
    });
  });
});
