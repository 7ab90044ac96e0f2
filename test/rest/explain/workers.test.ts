/** What an explanation reports about known workers: those that ask for a job, and those that may take it. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, cancel, get, jobsPath, newAddon, post, submit } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { request } from '../../support/system-api.ts';
import { enqueue, newStream } from '../../support/worker-api.ts';

onEveryEngine((engine) => {
  describe('the causes of a job that needs a capability', () => {
    let server: TestServer;
    let job_type: string;
    const submitted: string[] = [];
    before(async () => {
      server = await startTestServer(engine);
    });
    beforeEach(() => {
      job_type = newAddon();
    });
    afterEach(async () => {
      for (const jobId of submitted.splice(0)) await cancel(server, jobId);
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(() => server.stop());

    const constraints = { gpu_required: true, cpu_heavy: true };
    const waiting = async (cost_units = 1): Promise<string> => {
      const { job_id } = await submit(server, { job_type, constraints, cost_units });
      submitted.push(job_id);
      return job_id;
    };
    const queue = async (): Promise<Body> => (await get(server, '/api/scheduler/stats/queue?limit=50')).body;
    /**
     * A worker asks and gets nothing. A server that returns the queue has first stored which workers it
     * knows.
     */
    const asks = async (fields: object) => {
      const { body, text } = await request(server, { worker_id: newAddon(), ...fields });
      expect(body.denied, text).to.equal(true);
      await queue();
    };
    const causesOf = async (jobId: string): Promise<Body[]> =>
      (await get(server, `${jobsPath}/${jobId}/explain`)).body.causes;
    const codesOf = async (jobId: string) => (await causesOf(jobId)).map(({ code }) => code);

    it('names the capability first if workers ask for the job and none has it', async () => {
      const jobId = await waiting();
      await asks({ accept_job_types: [job_type], constraints_capabilities: { tpu_available: true } });
      const causes = await causesOf(jobId);
      expect(causes.map(({ code }) => code)).to.deep.equal(['needs_capability', 'waiting_for_worker']);
      const [lacking, worker] = causes;
      expect(lacking).to.deep.include({
        text: `known workers ask for jobs of type ${job_type}, but none that says gpu_available: true and does not say cpu_heavy: false`,
        facts: { requires: ['gpu'], heavy: ['cpu'], worker_known: false },
      });
      expect(worker.facts).to.deep.equal({ worker_known: false });
      const group = (await queue()).groups.find((each: Body) => each.job_type === job_type);
      expect(group.oldest.cause).to.deep.equal({ code: lacking.code, text: lacking.text });

      await server.database.query(
        "update live_jobs set ready_at = ready_at - interval '1 h' where job_id = $1",
        [jobId],
      );
      const { findings } = (await get(server, '/api/system/doctor')).body;
      const found = findings.find(({ code }: Body) => code === 'oldest_ready');
      expect(found.facts).to.include({ job_id: jobId, cause: 'needs_capability' });
    });

    it('names a capability that no worker has before missing units', async () => {
      const jobId = await waiting(60);
      await asks({ accept_job_types: [job_type] });
      await server.database.query('update capacity set busy_rating = 5', []);
      try {
        expect(await codesOf(jobId)).to.deep.equal([
          'needs_capability',
          'waiting_for_units',
          'waiting_for_worker',
        ]);
      } finally {
        await server.database.query('update capacity set busy_rating = 0', []);
      }
    });

    it('names the capability first for a job of a stream too, and the stream last', async () => {
      const stream = newStream();
      const { job_id } = await enqueue(server, stream, { constraints });
      submitted.push(job_id);
      await post(server, '/internal/worker/claim', { worker_id: 'w', streams: [stream], max_wait_ms: 0 });
      await queue();
      expect(await codesOf(job_id)).to.deep.equal([
        'needs_capability',
        'waiting_for_worker',
        'needs_stream_worker',
      ]);
    });

    it('names the worker first if workers ask for other jobs only', async () => {
      const jobId = await waiting();
      await asks({ accept_job_types: [newAddon()], constraints_capabilities: { gpu_available: true } });
      expect(await codesOf(jobId)).to.deep.equal(['waiting_for_worker', 'needs_capability']);
    });

    it('names the worker first if a known worker has the capability', async () => {
      await asks({ accept_job_types: [job_type], constraints_capabilities: { gpu_available: true } });
      const jobId = await waiting();
      const [worker, needs] = await causesOf(jobId);
      expect([worker.code, needs.code]).to.deep.equal(['waiting_for_worker', 'needs_capability']);
      expect(worker.text).to.include('it is the first in the queue and enough units are free');
      expect(needs.facts).to.deep.equal({ requires: ['gpu'], heavy: ['cpu'] });
    });
  });
});
