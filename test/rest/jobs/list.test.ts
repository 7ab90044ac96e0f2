import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  type Body,
  cancel,
  claim,
  expectError,
  get,
  jobIntentFields,
  jobsPath,
  newAddon,
  read,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const ids = (jobs: Body[]): string[] => jobs.map(({ job_id }) => job_id);

onEveryEngine((engine) => {
  describe('the queue contract: listing jobs', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const list = async (query: Record<string, string>): Promise<Body> => {
      const { status: code, body } = await get(server, `${jobsPath}?${new URLSearchParams(query)}`);
      expect(code, JSON.stringify(body)).to.equal(200);
      return body;
    };
    const submitSome = async (count: number, fields: object = {}): Promise<Body[]> => {
      const addon_id = newAddon();
      const jobs: Body[] = [];
      for (let n = 0; n < count; n++)
        jobs.push(await submit(server, { addon_id, payload: { n }, ...fields }));
      return jobs;
    };

    it('lists jobs without any parameter', async () => {
      await submitSome(1);
      const { status: code, body } = await get(server, jobsPath);
      expect(code).to.equal(200);
      expect(body).to.have.all.keys('jobs', 'next_cursor');
      for (const job of body.jobs) expect(job).to.include.all.keys(...jobIntentFields);
    });

    it('lists the newest jobs first, as single reads return them, and ends with a null cursor', async () => {
      const jobs = await submitSome(3);
      const body = await list({ addon_id: jobs[0].addon_id });
      expect(body.next_cursor).to.equal(null);
      expect(body.jobs).to.deep.equal([...jobs].reverse());
      for (const job of body.jobs) expect((await read(server, job.job_id)).job).to.deep.equal(job);
    });

    it('returns an empty list if no job matches', async () => {
      expect(await list({ addon_id: 'nobody' })).to.deep.equal({ jobs: [], next_cursor: null });
    });

    it('filters jobs by each state of the contract, ended jobs too', async () => {
      const [queued, claimed, preparing, pending, canceled] = (await submitSome(5)).reverse();
      const { addon_id } = queued;
      await cancel(server, canceled.job_id);
      for (const job of [pending, preparing, claimed]) {
        expect((await claim(server, addon_id)).job_id).to.equal(job.job_id);
      }
      await status(server, preparing.job_id, { state: 'PREPARING' });
      await status(server, pending.job_id, { state: 'LEASE_PENDING' });
      const expected: Record<string, Body[]> = {
        QUEUED: [queued],
        CLAIMED: [claimed],
        PREPARING: [preparing],
        LEASE_PENDING: [pending],
        RUNNING: [],
        DONE: [],
        FAILED: [],
        CANCELED: [canceled],
        TIMEOUT: [],
      };
      for (const [state, jobs] of Object.entries(expected)) {
        const body = await list({ addon_id, state });
        expect(ids(body.jobs), state).to.deep.equal(ids(jobs));
        for (const job of body.jobs) expect(job.state).to.equal(state);
      }
      const all = await list({ addon_id });
      expect(ids(all.jobs)).to.deep.equal(ids([queued, claimed, preparing, pending, canceled]));
    });

    it('refuses LEASED as a state filter', async () => {
      expectError(await get(server, `${jobsPath}?state=LEASED`), {
        status: 400,
        code: 'invalid_request',
        field: 'state',
      });
    });

    it('filters jobs by creation time', async () => {
      const [first, second, third] = await submitSome(3);
      const { addon_id } = first;
      const around = (job: Body, ms: number) => new Date(Date.parse(job.created_at) + ms).toISOString();
      const far = { created_after: around(first, -60_000), created_before: around(third, 60_000) };
      expect((await list({ addon_id, ...far })).jobs).to.have.length(3);
      // Answers contain whole milliseconds, in which several jobs may have been created.
      const newer = await list({ addon_id, created_after: around(first, -1) });
      const older = await list({ addon_id, created_before: around(third, 1) });
      for (const { created_at } of newer.jobs) {
        expect(Date.parse(created_at)).to.be.at.least(Date.parse(first.created_at));
      }
      expect(ids(newer.jobs)).to.include.members(ids([third, second]));
      expect(ids(older.jobs)).to.include.members(ids([second, first]));
      expect((await list({ addon_id, created_after: around(third, 5) })).jobs).to.deep.equal([]);
      expect((await list({ addon_id, created_before: around(first, -5) })).jobs).to.deep.equal([]);
      expect((await list({ addon_id, created_after: '0001-01-01T00:00:00Z' })).jobs).to.have.length(3);
      expect((await list({ addon_id, created_before: '9999-12-31T23:59:59Z' })).jobs).to.have.length(3);
    });

    it('accepts a time with an offset, and treats an empty parameter as absent', async () => {
      const [job] = await submitSome(1);
      const local = new Date(Date.parse(job.created_at) + 3_540_000).toISOString().replace('Z', '+01:00');
      const found = await list({
        addon_id: job.addon_id,
        created_after: local,
        state: '',
        cursor: '',
        limit: '',
      });
      expect(found.jobs).to.deep.equal([job]);
    });

    it('returns 50 jobs per page without a limit, and at most 200', async () => {
      const addon_id = newAddon();
      await Promise.all(Array.from({ length: 60 }, () => submit(server, { addon_id })));
      const page = await list({ addon_id });
      expect(page.jobs).to.have.length(50);
      expect(page.next_cursor).to.be.a('string');
      const rest = await list({ addon_id, cursor: page.next_cursor });
      expect(rest.jobs).to.have.length(10);
      expect((await list({ addon_id, limit: '200' })).jobs).to.have.length(60);
      const exact = await list({ addon_id, limit: '60' });
      expect(exact.jobs).to.have.length(60);
      expect(exact.next_cursor).to.equal(null);
    });

    const bad: [string, string][] = [
      ['limit', '0'],
      ['limit', '-1'],
      ['limit', '201'],
      ['limit', '1e1'],
      ['limit', 'ten'],
      ['limit', '99999999999999999999'],
      ['cursor', 'nonsense'],
      ['cursor', '\0'],
      ['cursor', 'x'.repeat(5_000)],
      ['state', 'queued'],
      ['state', 'SLEEPING'],
      ['created_after', 'yesterday'],
      ['created_before', '2025-13-01T00:00:00Z'],
      ['created_after', '2025-12-28'],
      ['addon_id', '\0'],
      ['addon_id', 'x'.repeat(201)],
    ];
    for (const [field, value] of bad) {
      it(`refuses ${field}=${JSON.stringify(value).slice(0, 40)} with 400`, async () => {
        const answer = await get(server, `${jobsPath}?${new URLSearchParams({ [field]: value })}`);
        expectError(answer, { status: 400, code: 'invalid_request', field });
      });
    }

    it('lists each job once over all pages, while jobs are added and change', async () => {
      const addon_id = newAddon();
      const submitted: Body[] = await Promise.all(
        Array.from({ length: 70 }, (_, n) => submit(server, { addon_id, job_type: `t${n % 5}` })),
      );
      let paging = true;
      const busy = (async () => {
        for (let n = 0; paging; n++) {
          await submit(server, { addon_id });
          const { job_id } = submitted[n % submitted.length];
          if (n % 3 === 0) await cancel(server, job_id);
          else await claim(server, addon_id);
        }
      })();
      const seen: Body[] = [];
      let cursor: string | null = '';
      do {
        const page: Body = await list({ addon_id, limit: '7', cursor: cursor ?? '' });
        seen.push(...page.jobs);
        cursor = page.next_cursor;
      } while (cursor !== null);
      paging = false;
      await busy;
      expect(new Set(ids(seen)).size, 'a job came twice').to.equal(seen.length);
      expect(ids(seen)).to.include.members(ids(submitted));
      const times = seen.map(({ job_id }) => job_id);
      expect(times).to.deep.equal([...times].sort().reverse());
    });

    it('lists pages with filters', async () => {
      const jobs = await submitSome(9);
      const { addon_id } = jobs[0];
      for (const [n, { job_id }] of jobs.entries()) if (n % 2 === 0) await cancel(server, job_id);
      const seen: Body[] = [];
      for (let cursor = ''; ; ) {
        const page = await list({ addon_id, state: 'CANCELED', limit: '2', cursor });
        seen.push(...page.jobs);
        if (page.next_cursor === null) break;
        cursor = page.next_cursor;
      }
      expect(ids(seen)).to.deep.equal(ids(jobs.filter((_, n) => n % 2 === 0).reverse()));
    });
  });
});
