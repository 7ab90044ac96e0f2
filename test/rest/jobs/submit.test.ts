import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  expectError,
  expectJobIntent,
  expectTime,
  jobsPath,
  newAddon,
  plainJob,
  post,
  read,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: submitting a job', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const path = `${jobsPath}/submit`;
    const least = () => ({ addon_id: newAddon(), job_type: 'load30', cost_units: 30 });

    it("answers the contract's example of a submission with 201 and the job", async () => {
      const { status, headers, body } = await post(
        server,
        path,
        `{
          "addon_id": "visuals",
          "job_type": "load30",
          "priority": "NORMAL",
          "cost_units": 30,
          "constraints": { "cpu_heavy": true },
          "payload": { "model": "sdxl", "prompt": "..." },
          "client_request_id": "optional-idempotency-key"
        }`,
      );
      expect(status).to.equal(201);
      expect(headers.get('content-type')).to.match(/^application\/json/);
      expect(Object.keys(body)).to.deep.equal(['job']);
      expectJobIntent(
        body.job,
        plainJob({
          addon_id: 'visuals',
          constraints: { cpu_heavy: true },
          payload: { model: 'sdxl', prompt: '...' },
          state: 'QUEUED',
        }),
      );
      expect(body.job.created_at).to.equal(body.job.updated_at);
    });

    it('answers a submission with the same job that a read returns', async () => {
      const job = await submit(server, {
        priority: 'HIGH',
        constraints: { gpu_required: true, cpu_heavy: false },
        payload: { deep: [{ er: null }], ünï: '☃', number: 0.1 },
        client_request_id: 'key',
        stream: 'a stream',
        unique: true,
        tags: ['b', 'a'],
        max_runtime_s: 60,
        max_attempts: 7,
        retry_backoff_s: 0,
        run_at: '2999-12-31T23:59:59.5Z',
      });
      expect(await read(server, job.job_id)).to.deep.equal({ job, result: null });
    });

    for (const priority of ['LOW', 'NORMAL', 'HIGH', 'URGENT']) {
      it(`accepts the priority ${priority}`, async () => {
        expect((await submit(server, { priority })).priority).to.equal(priority);
      });
    }

    it('requires only addon_id, job_type and cost_units, and fills in defaults', async () => {
      const { body } = await post(server, path, least());
      expect(body.job).to.include({ priority: 'NORMAL', state: 'QUEUED', attempts: 0, stream: null });
      expect(body.job.constraints).to.deep.equal({});
      expect(body.job.payload).to.deep.equal({});
      expect(body.job).to.include({ client_request_id: null, unique: false, max_runtime_s: null });
      expect(body.job).to.include({ max_attempts: 1, retry_backoff_s: 2, run_at: null });
      expect(body.job).to.include({ cancel_requested: false, progress: null, note: null });
      expect(body.job.tags).to.deep.equal([]);
    });

    it('gives a job of a stream three attempts by default', async () => {
      expect((await submit(server, { stream: 'renders' })).max_attempts).to.equal(3);
      expect((await submit(server, { stream: 'renders', max_attempts: 1 })).max_attempts).to.equal(1);
    });

    it('treats null in optional fields of a submission as absent', async () => {
      const optional = [
        'priority',
        'constraints',
        'payload',
        'client_request_id',
        'stream',
        'unique',
        'tags',
        'max_runtime_s',
        'max_attempts',
        'retry_backoff_s',
        'run_at',
      ];
      const nulls = Object.fromEntries(optional.map((field) => [field, null]));
      const plain = await submit(server, {});
      const job = await submit(server, nulls);
      const own = ['job_id', 'addon_id', 'created_at', 'updated_at'];
      const rest = (object: object) => Object.entries(object).filter(([key]) => !own.includes(key));
      expect(rest(job)).to.deep.equal(rest(plain));
    });

    it('ignores unknown fields of a submission', async () => {
      const { status, body } = await post(server, path, {
        ...least(),
        state: 'DONE',
        job_id: 'mine',
        attempts: 9,
        colour: 'red',
      });
      expect(status).to.equal(201);
      expect(body.job).to.include({ state: 'QUEUED', attempts: 0 });
      expect(body.job.job_id).not.to.equal('mine');
      expect(body.job).not.to.have.property('colour');
    });

    for (const field of ['addon_id', 'job_type', 'cost_units']) {
      it(`refuses a job without ${field} with 400`, async () => {
        const { [field]: _, ...rest } = least() as Record<string, unknown>;
        expectError(await post(server, path, rest), { status: 400, code: 'invalid_request', field });
      });
    }

    for (const cost of [0, -1, -30]) {
      it(`refuses cost_units of ${cost} with 400`, async () => {
        const answer = await post(server, path, { ...least(), cost_units: cost });
        expectError(answer, { status: 400, code: 'invalid_request', field: 'cost_units' });
      });
    }

    it('returns the start time of a delayed job', async () => {
      const runAt = new Date(Date.now() + 3_600_000);
      const job = await submit(server, { run_at: runAt.toISOString() });
      expectTime(job.next_retry_at, { of: runAt.getTime(), withinMs: 2 });
      expect(job.next_retry_at).to.equal(job.run_at);
      expect((await submit(server, { run_at: '2001-01-01T00:00:00Z' })).next_retry_at).to.equal(null);
    });

    for (const time of ['2025-12-28T20:15:00Z', '2025-12-28T21:15:00+01:00', '2025-12-28T20:15:00.000Z']) {
      it(`reads ${time} as an instant, and returns times in UTC`, async () => {
        const job = await submit(server, { run_at: time });
        expect(new Date(job.run_at).toISOString()).to.equal('2025-12-28T20:15:00.000Z');
        expect(job.run_at).to.match(/Z$/);
        expect((await read(server, job.job_id)).job.run_at).to.equal(job.run_at);
      });
    }

    for (const time of [
      '0001-01-01T00:00:00Z',
      '0049-06-01T00:00:00Z',
      '1969-12-31T23:59:59.999Z',
      '9999-12-31T23:59:59Z',
    ]) {
      it(`returns the far time ${time} unchanged`, async () => {
        const job = await submit(server, { run_at: time });
        expect(Date.parse(job.run_at)).to.equal(Date.parse(time));
        expect((await read(server, job.job_id)).job.run_at).to.equal(job.run_at);
      });
    }
  });
});
