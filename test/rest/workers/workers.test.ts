/** The workers that a server knows, and what they ask for: `ListWorkers` and `GET /api/scheduler/workers`. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { frame, HeartbeatClient } from '../../support/heartbeat-streams.ts';
import { type Body, claimedJob, get, jobsPath, newAddon, post, submit } from '../../support/jobs-api.ts';
import { heartbeat, leasedJob, plenty, release } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { WorkClient } from '../../support/work-streams.ts';
import { claimFrom, newStream } from '../../support/worker-api.ts';

const workersPath = '/api/scheduler/workers';
let names = 0;
const newWorker = (): string => `listed-${++names}`;

onEveryEngine((engine) => {
  describe('the list of workers', () => {
    let server: TestServer;
    const clients: Disposable[] = [];
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
    });
    after(() => server.stop());
    afterEach(() => {
      for (const client of clients.splice(0)) client[Symbol.dispose]();
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });

    const list = async (query: object = {}): Promise<Body> => {
      const { status, text, body } = await get(
        server,
        `${workersPath}?${new URLSearchParams(query as Record<string, string>)}`,
      );
      expect(status, text).to.equal(200);
      return body;
    };
    const find = async (worker_id: string): Promise<Body> => (await list({ worker_id })).workers[0];
    const found = (workerId: string, isIt: (worker: Body) => boolean = () => true): Promise<Body> =>
      eventually(`worker ${workerId}`, async () => {
        const worker = await find(workerId);
        return worker && isIt(worker) ? worker : undefined;
      });
    const working = (workerId: string): WorkClient => {
      const client = new WorkClient(server.grpc, workerId);
      clients.push(client);
      return client;
    };

    it('lists a work stream with its filters, its credit and its leases (B11)', async () => {
      const [workerId, stream, addonId] = [newWorker(), newStream(), newAddon()];
      const client = working(workerId);
      client.wants(3, {
        streams: [stream],
        acceptJobTypes: ['render', 'train'],
        addonId,
        maxUnits: 7,
        constraintsCapabilities: { gpu_available: true, cpu_heavy: false },
      });
      const worker = await found(workerId);
      expect(worker).to.deep.include({ active_leases: 0, claims: 0 });
      const [known, ...others] = worker.servers;
      expect(others).to.deep.equal([]);
      expect(known).to.deep.include({ connections: ['WORK_STREAM'], pid: process.pid, slots: 3 });
      expect(known.peer).to.include('127.0.0.1');
      expect(known.asks).to.deep.equal([
        {
          streams: [stream],
          accept_job_types: ['render', 'train'],
          addon_id: addonId,
          max_units: 7,
          constraints_capabilities: { gpu_available: true, cpu_heavy: false },
          jobs: 3,
          truncated: false,
        },
      ]);
      await submit(server, { stream, addon_id: addonId, job_type: 'train', cost_units: 1 });
      await client.granted(1);
      expect((await find(workerId)).active_leases).to.equal(1);
    });

    it('keeps listing the filters of a busy worker, with no slots', async () => {
      const [workerId, stream] = [newWorker(), newStream()];
      await submit(server, { stream });
      const client = working(workerId);
      client.wants(1, { streams: [stream] });
      await client.granted(1);
      const { servers } = await found(workerId);
      expect(servers[0]).to.deep.include({ slots: 0 });
      expect(servers[0].asks[0]).to.deep.include({ streams: [stream], jobs: 0 });
    });

    it('omits a worker soon after its last stream has closed', async () => {
      const workerId = newWorker();
      const client = new WorkClient(server.grpc, workerId);
      client.wants(1, { streams: [newStream()] });
      await found(workerId);
      client.close();
      await eventually('it to be gone', async () => ((await find(workerId)) ? undefined : true));
    });

    it('lists a worker with a heartbeat stream', async () => {
      const workerId = newWorker();
      const client = new HeartbeatClient(server.grpc);
      clients.push(client);
      const { lease } = await leasedJob(server, {}, {});
      client.send(frame([{ leaseId: lease.lease_id, workerId }]));
      await client.hears(1);
      expect((await found(workerId)).servers[0].connections).to.deep.equal(['HEARTBEAT_STREAM']);
    });

    it('lists a worker whose call waits as waiting, and afterwards as polling', async () => {
      const [workerId, stream] = [newWorker(), newStream()];
      const waiting = claimFrom(server, [stream], { worker_id: workerId, max_wait_ms: 20_000 });
      const worker = await found(workerId);
      expect(worker.servers[0]).to.deep.include({ connections: ['WAITING'], slots: 1 });
      await submit(server, { stream });
      expect((await waiting).body.claimed).to.equal(true);
      await server.database.query("update workers set expires_at = '-infinity' where worker_id = $1", [
        workerId,
      ]);
      expect((await find(workerId)).servers, 'known to none, and holding a lease').to.deep.equal([]);
      expect((await find(workerId)).active_leases).to.equal(1);
    });

    it('lists workers of unary calls, in all contracts', async () => {
      const { lease } = await leasedJob(server, {}, {});
      await heartbeat(server, lease.lease_id);
      const asking = newWorker();
      await post(server, '/api/system/scheduler/leases/request', {
        worker_id: asking,
        max_units: 5,
      });
      const claiming = newWorker();
      await post(server, `${jobsPath}/claim`, { worker_id: claiming, accept_job_types: ['never'], limit: 1 });
      for (const worker of [await found('worker-1'), await found(asking), await found(claiming)])
        expect(worker.servers[0].connections).to.deep.equal(['POLLING']);
      expect((await find(claiming)).servers[0].asks[0].accept_job_types).to.deep.equal(['never']);
      await release(server, lease.lease_id);
    });

    it("counts a worker's claims apart from its leases", async () => {
      const before = (await find('worker-1'))?.claims ?? 0;
      await claimedJob(server, {});
      expect((await find('worker-1')).claims).to.equal(before + 1);
    });

    it('finds workers by the stream and the type that they ask for', async () => {
      const [any, one, other, plain] = [newWorker(), newWorker(), newWorker(), newWorker()];
      const stream = newStream();
      const type = newAddon();
      working(any).wants(1, { streams: [stream, newStream()] });
      working(one).wants(1, { streams: [stream], acceptJobTypes: [type] });
      working(other).wants(1, { streams: [stream], acceptJobTypes: ['another'] });
      working(plain).wants(1, { acceptJobTypes: [type] });
      for (const worker of [any, one, other, plain]) await found(worker);
      const ids = async (query: object) =>
        (await list({ limit: '200', ...query })).workers
          .map(({ worker_id }: Body) => worker_id)
          .filter((id: string) => [any, one, other, plain].includes(id));
      expect(await ids({ stream })).to.have.members([any, one, other]);
      expect(await ids({ stream, job_type: type })).to.have.members([any, one]);
      expect(await ids({ job_type: type })).to.have.members([any, one, plain]);
    });

    it('lists workers in pages by name, connected ones and those that only hold jobs', async () => {
      const prefix = `page-${newWorker()}-`;
      const ids = Array.from({ length: 7 }, (_, i) => `${prefix}${i}`);
      const stream = newStream();
      for (const [i, worker_id] of ids.entries()) {
        if (i % 2 === 0) await submit(server, { stream });
        await claimFrom(server, [stream], { worker_id });
      }
      await list();
      await server.database.query('delete from workers where worker_id = any ($1::text[])', [
        [ids[0], ids[4]],
      ]);
      const seen: string[] = [];
      let cursor = prefix;
      for (;;) {
        const page = await list({ limit: '2', cursor });
        expect(page.workers.length).to.be.at.most(2);
        seen.push(...page.workers.map(({ worker_id }: Body) => worker_id));
        if (page.next_cursor === null || !page.next_cursor.startsWith(prefix)) break;
        cursor = page.next_cursor;
      }
      expect(seen.filter((id) => id.startsWith(prefix))).to.deep.equal(ids);
    });

    it('returns the same list of workers over RPC', async () => {
      const workerId = newWorker();
      working(workerId).wants(2, { constraintsCapabilities: { gpu_available: true } });
      await found(workerId);
      const { status, body } = await post(server, '/leasehold.v1.StatsService/ListWorkers', { workerId });
      expect(status).to.equal(200);
      expect(body.workers).to.have.length(1);
      expect(body.workers[0].servers[0]).to.deep.include({
        connections: ['WORKER_CONNECTION_WORK_STREAM'],
        slots: 2,
      });
      expect(body.workers[0].servers[0].asks).to.deep.equal([
        { constraintsCapabilities: { gpu_available: true }, jobs: 2 },
      ]);
    });

    it('refuses a limit of the list of workers that is too large', async () => {
      const { status, body } = await get(server, `${workersPath}?limit=201`);
      expect([status, body.code, body.field]).to.deep.equal([400, 'invalid_request', 'limit']);
    });
  });
});
