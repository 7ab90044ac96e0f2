import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { credentials, Client as GrpcClient, type ServiceError, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import {
  HealthCheckRequestSchema,
  HealthCheckResponse_ServingStatus,
  HealthCheckResponseSchema,
} from '../../../gen/grpc/health/v1/health_pb.js';
import { onEveryEngine, type TestEngine } from '../../support/engines.ts';
import { get, jobsPath, post, read, submit } from '../../support/jobs-api.ts';
import { startPostgres, type TestCluster } from '../../support/postgres.ts';
import { runCommand } from '../../support/process.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { servingStatus } from '../../support/wires.ts';

const reason = 'schema too new: migration 9999-future needs version 99.0.0 or later to write';
const jobsService = 'leasehold.v1.JobsService';

const check = (server: TestServer, service: string) => servingStatus(server.grpc, service);

onEveryEngine((engine) => {
  describe('health', () => {
    it('answers SERVING, up and ready while the database answers', async () => {
      await using server = await startTestServer(engine);
      for (const service of ['', jobsService]) expect(await check(server, service)).to.equal('SERVING');
      expect(await get(server, '/healthz')).to.deep.include({
        status: 200,
        body: { status: 'ok', database: 'up' },
      });
      expect(await get(server, '/readyz')).to.deep.include({
        status: 200,
        body: { status: 'ready', database: 'up' },
      });
    });
  });

  describe('health for callers without a credential', () => {
    const watchOf = (server: TestServer, service: string, onStatus: (status: number) => void) => {
      const client = new GrpcClient(server.grpc, credentials.createInsecure());
      const bytes = Buffer.from(
        toBinary(HealthCheckRequestSchema, create(HealthCheckRequestSchema, { service })),
      );
      const asIs = (value: Buffer) => value;
      const stream = client.makeServerStreamRequest('/grpc.health.v1.Health/Watch', asIs, asIs, bytes);
      const ended = new Promise<ServiceError>((resolve) => stream.on('error', resolve));
      stream.on('data', (answer: Buffer) => onStatus(fromBinary(HealthCheckResponseSchema, answer).status));
      return { ended, close: () => client.close(), cancel: () => stream.cancel() };
    };

    it('refuses a long name before it is received, and keeps none', async () => {
      await using server = await startTestServer(engine);
      const watch = watchOf(server, 'x'.repeat(1_000_000), () => {});
      expect((await watch.ended).code).to.equal(status.RESOURCE_EXHAUSTED);
      watch.close();
      const told = await check(server, 'x'.repeat(500)).then(String, (error: Error) => error.message);
      expect(told).to.include('there is no such service').and.not.to.include('xxx');
    });

    it('says SERVICE_UNKNOWN of another name, and every change of a known one', async () => {
      await using server = await startTestServer(engine);
      const seen: Record<string, number[]> = { '': [], unknown: [] };
      const watches = Object.keys(seen).map((name) =>
        watchOf(server, name, (serving) => void seen[name]?.push(serving)),
      );
      const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = HealthCheckResponse_ServingStatus;
      await eventually(
        'both answer',
        async () => Object.values(seen).every(({ length }) => length === 1) || undefined,
      );
      await server.database.refuseWrites(reason);
      await server.database.refuseWrites(undefined);
      await eventually('each change is sent', async () => seen['']?.length === 3 || undefined);
      expect(seen).to.deep.equal({ '': [SERVING, NOT_SERVING, SERVING], unknown: [SERVICE_UNKNOWN] });
      for (const watch of watches) {
        watch.cancel();
        expect((await watch.ended).code).to.equal(status.CANCELLED);
        watch.close();
      }
    });
  });

  describe('health while writes are refused', () => {
    it('answers NOT_SERVING and not ready, but alive, while the database refuses writes', async () => {
      await using server = await startTestServer(engine);
      const submitted = () =>
        post(server, `${jobsPath}/submit`, { addon_id: 'a', job_type: 't', cost_units: 1 });
      await server.database.refuseWrites(reason);
      for (const service of ['', jobsService]) expect(await check(server, service)).to.equal('NOT_SERVING');
      expect(await get(server, '/readyz')).to.deep.include({
        status: 503,
        body: { status: 'unavailable', database: 'up', reason },
      });
      expect(await get(server, '/healthz')).to.deep.include({
        status: 200,
        body: { status: 'ok', database: 'up' },
      });
      expect((await submitted()).status).to.equal(503);
      expect((await get(server, jobsPath)).status).to.equal(200);
      await server.database.refuseWrites(undefined);
      for (const service of ['', jobsService]) expect(await check(server, service)).to.equal('SERVING');
      expect(await get(server, '/readyz')).to.deep.include({
        status: 200,
        body: { status: 'ready', database: 'up' },
      });
      expect((await submitted()).status).to.equal(201);
    });

    it('names the refused writes in doctor', async () => {
      await using server = await startTestServer(engine);
      await server.database.refuseWrites(reason);
      const { code, stdout } = await runCommand(['doctor'], { LEASEHOLD_URL: server.http });
      expect(code, stdout).to.equal(1);
      expect(stdout).to.match(new RegExp(`^PROBLEM +migrations +${reason}$`, 'm'));
      expect(stdout).to.match(new RegExp(`^PROBLEM +ready +it is not ready: ${reason}, database up$`, 'm'));
      await server.database.refuseWrites(undefined);
      const { stdout: after } = await runCommand(['doctor'], { LEASEHOLD_URL: server.http });
      expect(after)
        .to.match(/^OK +migrations /m)
        .and.match(/^OK +ready /m);
    });
  });

  // The embedded database runs within its server, so it cannot be absent.
  if (engine.name === 'postgresql') describe('health without a database', () => withoutDatabase(engine));
});

function withoutDatabase(engine: TestEngine): void {
  let cluster: TestCluster;
  let server: TestServer;
  before(async () => {
    cluster = await startPostgres({ durable: false });
    const url = cluster.url(await cluster.createDatabase());
    server = await startTestServer(engine, { settings: { databaseUrl: url } });
  });
  after(async () => {
    await server.stop();
    await cluster.stop();
  });

  it('answers NOT_SERVING and not ready, but alive, until the database is back', async () => {
    const job = await submit(server, {});
    await cluster.kill();
    const down = await get(server, '/readyz');
    expect(down).to.deep.include({ status: 503, body: { status: 'unavailable', database: 'down' } });
    for (const service of ['', jobsService]) {
      await eventually(
        'health says NOT_SERVING',
        async () => (await check(server, service)) === 'NOT_SERVING' || undefined,
      );
    }
    expect(await get(server, '/healthz')).to.deep.include({
      status: 200,
      body: { status: 'ok', database: 'down' },
    });
    const answers = await Promise.all([
      get(server, jobsPath),
      get(server, `${jobsPath}/${job.job_id}`),
      post(server, `${jobsPath}/submit`, { addon_id: 'a', job_type: 't', cost_units: 1 }),
      post(server, `${jobsPath}/claim`, { worker_id: 'w' }),
      post(server, `${jobsPath}/${job.job_id}/cancel`, {}),
      post(server, `${jobsPath}/${job.job_id}/retry`, {}),
      get(server, `${jobsPath}/${job.job_id}/events`),
    ]);
    for (const { status, body, text, headers } of answers) {
      expect(status, text).to.equal(503);
      expect(body.code, text).to.equal('unavailable');
      expect(body.detail, text)
        .to.be.a('string')
        .and.not.to.match(/127\.0\.0\.1|ECONN|postgres:/);
      expect(headers.get('retry-after')).to.match(/^\d+$/);
    }
    await cluster.restart();
    await eventually(
      'the server is ready again',
      async () => (await get(server, '/readyz')).status === 200 || undefined,
    );
    await eventually(
      'health says SERVING again',
      async () => (await check(server, jobsService)) === 'SERVING' || undefined,
    );
    expect((await read(server, job.job_id)).job).to.deep.equal(job);
    for (const { level, msg, error } of server.complaints)
      expect([level, msg, error]).not.to.include('error');
  });
}
