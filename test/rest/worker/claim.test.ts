import { expect } from 'chai';
import { expectTime, expectUuid, get, post, read, retry, submit } from '../../support/jobs-api.ts';
import { expectReplay, plenty, setCapacity, typesOf } from '../../support/leases-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { request } from '../../support/system-api.ts';
import { onEveryTransport } from '../../support/transports.ts';
import {
  claimedFrom,
  claimFrom,
  complete,
  enqueue,
  fail,
  newStream,
  workerPath,
} from '../../support/worker-api.ts';

/**
 * Other load on the machine can only add to a wait, so the shorter waits of many show the server's own delay.
 * No claim may have waited for the sweep after two seconds.
 */
function expectSoon(waits: number[]): void {
  waits.sort((p, q) => p - q);
  expect(waits[Math.floor(waits.length / 4)], `${waits}`).to.be.below(50);
  expect(waits.at(-1), `${waits}`).to.be.below(1_500);
}

onEveryTransport(({ name, engine, start }) => {
  describe('a claim of the worker contract', () => {
    let server: TestServer;
    before(async () => {
      server = await start({ settings: { leaseTtlS: 60, capacityTotal: plenty } });
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    it('answers a claim with the job, its attempt and its message; the job is RUNNING', async () => {
      const stream = newStream();
      const { job_id } = await enqueue(server, stream, { payload: { url: 'https://example.org' } });
      const claim = await claimedFrom(server, [stream]);
      expectUuid(claim.attempt_id);
      expectUuid(claim.lease_token);
      expectTime(claim.lease_expires_at, { of: Date.now() + 60_000, withinMs: 5_000 });
      expect(claim.stream.message_id).to.be.a('string').and.not.equal('');
      const { attempt_id, lease_token, fence, lease_expires_at, ...rest } = claim;
      expect(fence).to.be.a('number');
      expect(rest).to.deep.equal({
        claimed: true,
        job_id,
        stream: { name: stream, message_id: claim.stream.message_id },
        payload: { url: 'https://example.org' },
        lease_ttl_seconds: 60,
        heartbeat_interval_seconds: 20,
        heartbeat_within_ms: 60_000,
        job_type: 'load30',
        attempt: 1,
        max_attempts: 3,
      });
      const { job } = await read(server, job_id);
      expect([job.state, job.lease_id, job.claimed_by]).to.deep.equal(['RUNNING', attempt_id, 'worker-1']);
      expect(await typesOf(server, job_id)).to.deep.equal(['JOB_SUBMITTED', 'LEASE_GRANTED']);
    });

    if (name === 'database') {
      it('names a message id that is unique to this queueing of the job', async () => {
        const stream = newStream();
        const { job_id } = await enqueue(server, stream);
        const first = await claimedFrom(server, [stream]);
        await fail(server, first);
        const second = await claimedFrom(server, [stream]);
        expect([first, second].map((claim) => claim.stream.message_id)).to.deep.equal([
          `${job_id}:1`,
          `${job_id}:2`,
        ]);
      });
    }

    it('reports that no job is available, at once or after the maximum wait', async () => {
      const stream = newStream();
      const { status, body } = await claimFrom(server, [stream]);
      expect(status).to.equal(200);
      const { retry_after_ms, ...rest } = body;
      expect(rest).to.deep.equal({ claimed: false, reason: 'No jobs available' });
      expect(retry_after_ms).to.be.a('number');
      const began = performance.now();
      expect((await claimFrom(server, [stream], { max_wait_ms: 300 })).body.claimed).to.equal(false);
      expect(performance.now() - began).to.be.within(295, 5_000);
    });

    it('claims from streams in the given order, by priority and then the oldest first', async () => {
      const [a, b, other] = [newStream(), newStream(), newStream()];
      await enqueue(server, other);
      const jobs = {
        b1: await enqueue(server, b, { priority: 'URGENT' }),
        a1: await enqueue(server, a),
        a2: await enqueue(server, a, { job_type: 'another' }),
        a3: await enqueue(server, a, { priority: 'HIGH', addon_id: 'somebody-else' }),
        b2: await enqueue(server, b),
      };
      const order: string[] = [];
      for (const _ of Object.keys(jobs)) order.push((await claimedFrom(server, [a, b, a])).job_id);
      const expected = [jobs.a3, jobs.a1, jobs.a2, jobs.b1, jobs.b2];
      expect(order).to.deep.equal(expected.map(({ job_id }) => job_id));
      expect((await claimFrom(server, [a, b])).body.claimed).to.equal(false);
    });

    it('claims jobs of streams only for workers that name the stream', async () => {
      const stream = newStream();
      const { job_id, addon_id } = await enqueue(server, stream);
      const claim = await post(server, '/api/scheduler/jobs/claim', { addon_id, worker_id: 'w' });
      expect(claim.status).to.equal(204);
      const system = await request(server, { addon_id });
      expect([system.body.denied, system.body.reason]).to.deep.equal([true, 'No jobs available']);
      await submit(server, { addon_id, cost_units: 1 });
      expect((await claimedFrom(server, [stream])).job_id).to.equal(job_id);
      expect((await claimFrom(server, [stream])).body.claimed, 'a job without a stream').to.equal(false);
    });

    it('delivers a submitted job to a waiting worker within 50 ms', async () => {
      const stream = newStream();
      const waits: number[] = [];
      for (let i = 0; i < 11; i++) {
        const claim = claimedFrom(server, [newStream(), stream], { max_wait_ms: 10_000 }).then((body) => ({
          body,
          at: performance.now(),
        }));
        // The claim must be waiting, and there is no signal for that before its answer. The delay gives it
        // time to start.
        await new Promise((resolve) => setTimeout(resolve, 50));
        const { job_id } = await enqueue(server, stream);
        const submittedAt = performance.now();
        const { body, at } = await claim;
        expect(body.job_id).to.equal(job_id);
        waits.push(at - submittedAt);
        await complete(server, body);
      }
      expectSoon(waits);
    });

    if (engine.name === 'postgresql') {
      it('delivers a job that another server accepted within 50 ms', async () => {
        const other = await start({ settings: { capacityTotal: plenty }, shared: server.store });
        try {
          const waits: number[] = [];
          for (let i = 0; i < 11; i++) {
            const stream = newStream();
            const claim = claimedFrom(other, [stream], { max_wait_ms: 10_000 }).then(() => performance.now());
            await new Promise((resolve) => setTimeout(resolve, 50));
            await enqueue(server, stream);
            const submittedAt = performance.now();
            waits.push((await claim) - submittedAt);
          }
          expectSoon(waits);
        } finally {
          await other.stop();
        }
      });
    }

    it('delivers a retried job, and one whose backoff ended, to a waiting worker', async () => {
      const stream = newStream();
      const { job_id } = await enqueue(server, stream, { max_attempts: 2, retry_backoff_s: 1 });
      await fail(server, await claimedFrom(server, [stream]));
      const second = await claimedFrom(server, [stream], { max_wait_ms: 20_000 });
      expect([second.job_id, second.attempt]).to.deep.equal([job_id, 2]);
      expect((await fail(server, second)).body.dlq).to.equal(true);
      const waiting = claimedFrom(server, [stream], { max_wait_ms: 20_000 });
      expect((await retry(server, job_id)).status).to.equal(200);
      expect((await waiting).attempt).to.equal(3);
    });

    it('claims nothing beyond the capacity, and waits for free units', async () => {
      const stream = newStream();
      const mine = await start({ settings: { capacityTotal: 3 } });
      try {
        await enqueue(mine, stream, { cost_units: 2 });
        await enqueue(mine, stream, { cost_units: 2 });
        const first = await claimedFrom(mine, [stream]);
        const { body } = await claimFrom(mine, [stream]);
        expect(body.reason).to.equal('Capacity exceeded: used=2, requested=2, capacity=3');
        const waiting = claimedFrom(mine, [stream], { max_wait_ms: 20_000 });
        await complete(mine, first);
        const second = await waiting;
        await setCapacity(mine, { total: 1 });
        await complete(mine, second);
        const { job_id } = await enqueue(mine, stream, { cost_units: 2 });
        const large = claimedFrom(mine, [stream], { max_wait_ms: 20_000 });
        await eventually('the job is put aside', async () => {
          const { streams } = (await get(mine, `/api/scheduler/streams?stream=${stream}`)).body;
          return streams[0].delayed === 1 ? true : undefined;
        });
        await setCapacity(mine, { total: 2 });
        expect((await large).job_id).to.equal(job_id);
      } finally {
        await mine.stop();
      }
    });

    it('returns the same claim with the same token for a repeated request_id', async () => {
      const stream = newStream();
      await enqueue(server, stream);
      await enqueue(server, stream);
      const first = await claimedFrom(server, [stream], { request_id: 'once' });
      const again = await claimedFrom(server, [stream], { request_id: 'once' });
      expectReplay(again, first);
      expect((await claimedFrom(server, [stream])).job_id).not.to.equal(first.job_id);
    });

    const bad: [string, object, string][] = [
      ['no worker', { worker_id: undefined }, 'worker_id'],
      ['a blank worker', { worker_id: '  ' }, 'worker_id'],
      ['no streams', { streams: undefined }, 'streams'],
      ['an empty list of streams', { streams: [] }, 'streams'],
      ['a stream that is no text', { streams: ['a', 7] }, 'streams[1]'],
      ['a blank stream', { streams: [''] }, 'streams[0]'],
      ['too many streams', { streams: Array.from({ length: 501 }, (_, i) => `s${i}`) }, 'streams'],
      ['a wait that is no number', { max_wait_ms: 'long' }, 'max_wait_ms'],
      ['a negative wait', { max_wait_ms: -1 }, 'max_wait_ms'],
      ['too long a wait', { max_wait_ms: 60_001 }, 'max_wait_ms'],
    ];
    for (const [what, fields, field] of bad) {
      it(`refuses a claim with ${what}, and names the field`, async () => {
        const { status, body } = await claimFrom(server, ['a'], fields);
        expect([status, body.claimed, body.code, body.field]).to.deep.equal([
          400,
          false,
          'invalid_request',
          field,
        ]);
      });
    }

    it("refuses an unreadable claim in the shape of the contract's errors", async () => {
      const { status, body } = await post(server, `${workerPath}/claim`, '{');
      expect([status, body.claimed, body.code]).to.deep.equal([400, false, 'invalid_request']);
    });
  });
});
