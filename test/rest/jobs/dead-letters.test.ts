import { expect } from 'chai';
import { connectLeasehold, type LeaseholdClient } from '../../../src/client/grpc-client.ts';
import {
  type Body,
  cancel,
  eventsOf,
  get,
  jobsPath,
  post,
  read,
  retry,
  submit,
} from '../../support/jobs-api.ts';
import { plenty } from '../../support/leases-api.ts';
import type { TestServer } from '../../support/server.ts';
import { onEveryTransport } from '../../support/transports.ts';
import { claimedFrom, claimFrom, complete, enqueue, fail, newStream } from '../../support/worker-api.ts';

onEveryTransport(({ start }) => {
  describe('dead letters', () => {
    let server: TestServer;
    let client: LeaseholdClient;
    before(async () => {
      server = await start({ settings: { capacityTotal: plenty } });
      client = connectLeasehold(server.grpc);
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    /** A job of a stream that became a dead letter. */
    async function deadLetter(stream: string, fields: object = {}, code = 'E_INPUT'): Promise<Body> {
      const { job_id } = await enqueue(server, stream, fields);
      const claim = await claimedFrom(server, [stream]);
      expect(claim.job_id).to.equal(job_id);
      await fail(server, claim, { error: { code, message: 'unreadable', retryable: false } });
      return claim;
    }

    const listed = async (query: string): Promise<string[]> => {
      const { status, text, body } = await get(server, `${jobsPath}?${query}`);
      expect(status, text).to.equal(200);
      return body.jobs.map(({ job_id }: Body) => job_id);
    };

    const retryBy = (body: unknown) => post(server, `${jobsPath}/retry`, body);

    it('lists only dead letters, newest first, in pages', async () => {
      const stream = newStream();
      const dead: string[] = [];
      for (let i = 0; i < 3; i++) dead.unshift((await deadLetter(stream)).job_id);
      await enqueue(server, stream);
      await complete(server, await claimedFrom(server, [stream]));
      const { job_id } = await enqueue(server, stream);
      await cancel(server, job_id);
      expect(await listed(`stream=${stream}&dead_lettered=true`)).to.deep.equal(dead);
      expect(await listed(`stream=${stream}&dead_lettered=true&state=TIMEOUT`)).to.deep.equal([]);
      expect(await listed(`stream=${stream}&dead_lettered=true&state=FAILED`)).to.deep.equal(dead);
      expect(await listed(`stream=${stream}&dead_lettered=false`)).to.have.length(2);
      const { body } = await get(server, `${jobsPath}?stream=${stream}&dead_lettered=true&limit=2`);
      expect(body.jobs).to.have.length(2);
      expect(await listed(`stream=${stream}&dead_lettered=true&cursor=${body.next_cursor}`)).to.deep.equal(
        dead.slice(2),
      );
      expect((await get(server, `${jobsPath}?dead_lettered=perhaps`)).body.field).to.equal('dead_lettered');
    });

    it('makes only failed jobs of streams dead letters', async () => {
      const { job_id, addon_id } = await submit(server, { cost_units: 1 });
      const { granted } = (
        await post(server, '/leasehold.v1.LeasesService/AcquireLease', { workerId: 'w', addonId: addon_id })
      ).body;
      await client.leases.releaseLease({ leaseId: granted.lease.leaseId, workerId: 'w', status: 2 });
      const { job } = await read(server, job_id);
      expect([job.state, job.dead_lettered]).to.deep.equal(['FAILED', false]);
    });

    it('redrives single dead letters with new attempts, and records it in the history', async () => {
      const stream = newStream();
      const { job_id } = await deadLetter(stream);
      const { body } = await retry(server, job_id, { reason: 'the input was mended', requested_by: 'ann' });
      expect([body.job.state, body.job.dead_lettered, body.job.attempts]).to.deep.equal(['QUEUED', false, 1]);
      const event = (await eventsOf(server, job_id)).at(-1);
      expect(event.type).to.equal('JOB_RETRIED');
      expect(event.data).to.include({ by: 'ann', reason: 'the input was mended' });
      expect(event.data.previous).to.include({ status: 'FAILED', error: 'unreadable' });
      const claim = await claimedFrom(server, [stream]);
      expect([claim.job_id, claim.attempt]).to.deep.equal([job_id, 2]);
      expect((await fail(server, claim)).body.requeued, 'three more attempts').to.equal(true);
      await complete(server, await claimedFrom(server, [stream]));
      expect((await read(server, job_id)).job.state).to.equal('DONE');
      expect(await listed(`stream=${stream}&dead_lettered=true`)).to.deep.equal([]);
    });

    it('redrives dead letters by filter, the oldest first, up to the limit', async () => {
      const stream = newStream();
      const dead = [
        await deadLetter(stream, { job_type: 'a' }, 'E_INPUT'),
        await deadLetter(stream, { job_type: 'b', addon_id: 'dead' }, 'E_INPUT'),
        await deadLetter(stream, { job_type: 'a' }, 'E_DISK'),
        await deadLetter(stream, { job_type: 'a' }, 'E_INPUT'),
      ].map(({ job_id }) => job_id);
      const none = await retryBy({ stream: newStream() });
      expect([none.status, none.body]).to.deep.equal([200, { retried: 0, job_ids: [] }]);
      const disk = await retryBy({ stream, error_code: 'E_DISK', requested_by: 'ann' });
      expect(disk.body).to.deep.equal({ retried: 1, job_ids: [dead[2]] });
      expect((await retryBy({ stream, addon_id: 'dead' })).body.job_ids).to.deep.equal([dead[1]]);
      expect((await retryBy({ stream, job_type: 'a', limit: 1 })).body.job_ids).to.deep.equal([dead[0]]);
      const { jobIds } = await client.jobs.retryDeadLetters({ stream, reason: 'all' });
      expect(jobIds).to.deep.equal([dead[3]]);
      const again: string[] = [];
      for (const _ of dead) again.push((await claimedFrom(server, [stream])).job_id);
      expect(again.sort()).to.deep.equal([...dead].sort());
      expect((await eventsOf(server, dead[2] as string)).some(({ type }) => type === 'JOB_RETRIED')).to.equal(
        true,
      );
    });

    it('redrives a dead letter once for many requests at the same time', async () => {
      const stream = newStream();
      const dead: string[] = [];
      for (let i = 0; i < 5; i++) dead.push((await deadLetter(stream)).job_id);
      const answers = await Promise.all([1, 2, 3, 4].map(() => retryBy({ stream })));
      expect(answers.flatMap(({ body }) => body.job_ids).sort()).to.deep.equal(dead.sort());
    });

    it('wakes workers that wait for the stream of a redriven dead letter', async () => {
      const stream = newStream();
      const { job_id } = await deadLetter(stream);
      const waiting = claimedFrom(server, [stream], { max_wait_ms: 20_000 });
      await retryBy({ stream });
      expect((await waiting).job_id).to.equal(job_id);
    });

    it('refuses an invalid request to redrive, and changes nothing', async () => {
      const stream = newStream();
      await deadLetter(stream);
      for (const [fields, field] of [
        [{ stream: 7 }, 'stream'],
        [{ stream, limit: 0 }, 'limit'],
        [{ stream, limit: 501 }, 'limit'],
        [{ stream, error_code: '' }, 'error_code'],
      ] as const) {
        const { status, body } = await retryBy(fields);
        expect([status, body.code, body.field]).to.deep.equal([400, 'invalid_request', field]);
      }
      expect((await claimFrom(server, [stream])).body.claimed).to.equal(false);
    });

    for (const stream of ['x'.repeat(201), ' ', 'a\0b']) {
      it(`refuses the counts of an invalid stream name: ${JSON.stringify(stream.slice(0, 5))}`, async () => {
        const path = `/api/scheduler/streams?${new URLSearchParams({ stream })}`;
        const { status, text, body } = await get(server, path);
        expect([status, body.code, body.field], text).to.deep.equal([400, 'invalid_request', 'stream']);
        const refused = await client.jobs.listStreams({ stream }).catch((error: unknown) => error);
        expect(String(refused)).to.include('invalid_request: stream: must');
      });
    }

    it('counts dead letters and all other jobs of a stream', async () => {
      const stream = newStream();
      await deadLetter(stream);
      await enqueue(server, stream);
      await enqueue(server, stream, { run_at: new Date(Date.now() + 3_600_000).toISOString() });
      await enqueue(server, stream, { job_type: 'another' });
      const running = await claimedFrom(server, [stream]);
      const { body } = await get(server, `/api/scheduler/streams?stream=${stream}`);
      expect(body.streams).to.deep.equal([{ stream, queued: 1, delayed: 1, running: 1, dead_lettered: 1 }]);
      await complete(server, running);
      const { streams } = await client.jobs.listStreams({});
      const one = streams.find((each) => each.stream === stream);
      expect([one?.queued, one?.delayed, one?.running, one?.deadLettered]).to.deep.equal([1, 1, 0, 1]);
      expect(streams.map((each) => each.stream)).to.deep.equal(streams.map((each) => each.stream).sort());
    });
  });
});
