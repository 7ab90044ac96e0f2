/** The queue contract's Stats API: its examples, and its refusals. */
import { expect } from 'chai';
import { metricNames } from '../../../src/domain/stats/series.ts';
import { onEveryEngine } from '../../support/engines.ts';
import {
  ask,
  type Body,
  cancel,
  claimedJob,
  expectError,
  expectTime,
  get,
  only,
  submit,
} from '../../support/jobs-api.ts';
import { leasedJob, release, setCapacity } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

const snapshotPath = '/api/scheduler/stats/snapshot';
const seriesPath = '/api/scheduler/stats/timeseries';

onEveryEngine((engine) => {
  describe('the Stats API', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: 70 } });
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    const snapshot = async (addonId?: string): Promise<Body> => {
      const path = addonId === undefined ? snapshotPath : `${snapshotPath}?addon_id=${addonId}`;
      const { status, body, text } = await get(server, path);
      expect(status, text).to.equal(200);
      return body;
    };
    const series = async (query: string): Promise<Body> => {
      const { status, body, text } = await get(server, `${seriesPath}?${query}`);
      expect(status, text).to.equal(200);
      return body;
    };

    it('returns zeros in the first snapshot', async () => {
      const { ts, ...body } = await snapshot();
      expectTime(ts);
      expect(body).to.deep.equal({
        addon_id: null,
        capacity: { total: 70, busy_rating: 0, usable: 70, used: 0, available: 70, reserved: 0 },
        jobs: {
          queued: 0,
          claimed: 0,
          running: 0,
          submitted_last_24h: 0,
          done_last_24h: 0,
          failed_last_24h: 0,
          canceled_last_24h: 0,
          timeout_last_24h: 0,
        },
        leases: { active: 0, granted_last_24h: 0, expired_last_24h: 0 },
      });
    });

    // From here on each test adds to the data of the tests before it.
    it("returns the contract's example of a snapshot", async () => {
      const failed = await leasedJob(server, { cost_units: 30 });
      await release(server, failed.lease.lease_id, { status: 'FAILED', error: 'no' });
      for (let i = 0; i < 4; i++) await submit(server, { addon_id: 'visuals' });
      await leasedJob(server, { addon_id: 'sounds', cost_units: 30 });
      await leasedJob(server, { addon_id: 'sounds', cost_units: 30 });
      const body = await snapshot();
      const shown = {
        capacity: only(body.capacity, ['total', 'used', 'reserved']),
        jobs: only(body.jobs, ['queued', 'running', 'failed_last_24h']),
        leases: only(body.leases, ['active', 'expired_last_24h']),
      };
      expect(shown).to.deep.equal({
        capacity: { total: 70, used: 60, reserved: 0 },
        jobs: { queued: 4, running: 2, failed_last_24h: 1 },
        leases: { active: 2, expired_last_24h: 0 },
      });
    });

    it('returns the figures of one submitter, and zeros for an unknown one', async () => {
      const sounds = await snapshot('sounds');
      expect(sounds).to.include({ addon_id: 'sounds' });
      expect(sounds.capacity).to.include({ total: 70, used: 60, available: 10 });
      expect(sounds.jobs).to.include({ queued: 0, running: 2, submitted_last_24h: 2 });
      const nobody = await snapshot('nobody');
      expect(nobody.capacity).to.include({ total: 70, used: 0, available: 10 });
      expect(nobody.jobs).to.include({ queued: 0, running: 0, submitted_last_24h: 0 });
      expect((await series('metric=jobs_queued&addon_id=nobody')).points.at(-1).value).to.equal(0);
      expect((await series('metric=wait_ms_p50&addon_id=nobody')).points.at(-1).value).to.equal(null);
    });

    it('includes every answered write in later snapshots', async () => {
      const { jobs, capacity } = await snapshot();
      for (let i = 1; i <= 5; i++) {
        const { job_id } = await claimedJob(server, { cost_units: 2 });
        const claimed = await snapshot();
        expect(claimed.jobs).to.include({ queued: jobs.queued, claimed: jobs.claimed + 1 });
        expect(claimed.capacity.reserved).to.equal(capacity.reserved + 2);
        await cancel(server, job_id);
        const after = await snapshot();
        expect(after.jobs.claimed).to.equal(jobs.claimed);
        expect(after.jobs.canceled_last_24h).to.equal(jobs.canceled_last_24h + i);
        const { points } = await series('metric=jobs_canceled&bucket=1h&range=2h');
        const counted = points.reduce((sum: number, { value }: Body) => sum + (value ?? 0), 0);
        expect(counted).to.equal(after.jobs.canceled_last_24h);
      }
    });

    it('returns a time series as in the contract: even, aligned, up to the current bucket', async () => {
      const body = await series('metric=leases_active&bucket=5m&range=24h');
      expect(body).to.include({ metric: 'leases_active', bucket: '5m', addon_id: null });
      expect(body.points).to.have.length(288);
      const first = Date.parse(body.points[0].ts);
      expect(first % 300_000).to.equal(0);
      for (const [i, point] of body.points.entries()) {
        expect(point).to.have.all.keys('ts', 'value');
        expect(Date.parse(point.ts)).to.equal(first + i * 300_000);
      }
      expect(Date.now() - Date.parse(body.points.at(-1).ts)).to.be.below(360_000);
      expect(body.points.at(-1).value).to.equal(2);
      // The time before the server's start is unknown, which is not the same as zero.
      expect(body.points[0].value).to.equal(null);
    });

    it('uses the bucket 5m and the range 24h by default', async () => {
      const body = await series('metric=jobs_done');
      expect(body.bucket).to.equal('5m');
      expect(body.points).to.have.length(288);
    });

    for (const metric of metricNames) {
      it(`returns a series of the metric ${metric}`, async () => {
        const body = await series(`metric=${metric}&bucket=15m&range=7d`);
        expect(body.points).to.have.length(672);
        expect(body.points.at(-1).value).to.satisfy(
          (value: unknown) => value === null || typeof value === 'number',
        );
      });
    }

    it('follows changes of the capacity in the series', async () => {
      await setCapacity(server, { total: 200, busy_rating: 5 });
      expect((await series('metric=capacity_usable&bucket=1m&range=1h')).points.at(-1).value).to.equal(100);
      expect((await snapshot()).capacity).to.include({ total: 200, busy_rating: 5, usable: 100 });
    });

    it('counts expired jobs', async () => {
      const { lease } = await leasedJob(server, { addon_id: 'late', cost_units: 1 }, { ttl_sec: 1 });
      await server.database.query(
        `update live_jobs set expires_at = clock_timestamp() - interval '1 ms', check_at = clock_timestamp() - interval '1 ms'
        where lease_id = $1`,
        [lease.lease_id],
      );
      const expired = await eventually('the lease is expired', async () => {
        const body = await snapshot('late');
        return body.leases.expired_last_24h === 1 ? body : undefined;
      });
      expect(expired.jobs).to.include({ running: 0, timeout_last_24h: 1, failed_last_24h: 0 });
      expect(expired.leases).to.include({ active: 0, granted_last_24h: 1 });
    });

    const refused: [query: string, field: string][] = [
      ['', 'metric'],
      ['metric=', 'metric'],
      ['metric=jobs', 'metric'],
      ['metric=constructor', 'metric'],
      ['metric=jobs_done&bucket=2m', 'bucket'],
      ['metric=jobs_done&bucket=toString', 'bucket'],
      ['metric=jobs_done&range=59m', 'range'],
      ['metric=jobs_done&range=31d', 'range'],
      ['metric=jobs_done&range=1w', 'range'],
      [`metric=jobs_done&range=${'9'.repeat(30)}d`, 'range'],
      ['metric=jobs_done&bucket=1m&range=2001m', 'bucket'],
      ['metric=jobs_done&bucket=15m&range=30d', 'bucket'],
      [`metric=jobs_done&addon_id=${'x'.repeat(201)}`, 'addon_id'],
      ['metric=jobs_done&addon_id=%20', 'addon_id'],
      ['metric=jobs_done&addon_id=%00', 'addon_id'],
      ['metric=capacity_usable&addon_id=visuals', 'addon_id'],
    ];
    for (const [query, field] of refused) {
      it(`refuses an invalid ${field}: ${query.slice(0, 60)}`, async () => {
        expectError(await get(server, `${seriesPath}?${query}`), {
          status: 400,
          code: 'invalid_request',
          field,
        });
      });
    }

    it('refuses a snapshot of an invalid submitter, by name', async () => {
      for (const addon of ['%20', '%00', 'x'.repeat(201)]) {
        const answer = await get(server, `${snapshotPath}?addon_id=${addon}`);
        expectError(answer, { status: 400, code: 'invalid_request', field: 'addon_id' });
      }
    });

    it('answers only GET on the Stats API', async () => {
      for (const path of [snapshotPath, seriesPath]) {
        for (const method of ['POST', 'PUT', 'DELETE']) {
          expectError(await ask(server, path, { method }), { status: 405, code: 'method_not_allowed' });
        }
      }
    });
  });
});
