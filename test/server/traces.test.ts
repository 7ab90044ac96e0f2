/**
 * What an OpenTelemetry collector receives from a server, and that a server runs without one or with a faulty
 * one.
 */
import { join } from 'node:path';
import { expect } from 'chai';
import { temporaryFolder } from '../support/cleanup.ts';
import { type ServerProcess, startServer } from '../support/process.ts';
import { connect } from '../support/server-clients.ts';
import { type CollectedSpan, Collector } from '../support/trace-collector.ts';

/** Five seconds for calls, two for the database, two for spans, and a margin for a busy machine. */
const stopLimitMs = 20_000;

const told = `data:text/javascript,${encodeURIComponent(`
import { registerHooks } from 'node:module';
registerHooks({
  resolve(specifier, context, next) {
    if (specifier.includes('@opentelemetry/')) process.stderr.write('loads ' + specifier + '\\n');
    return next(specifier, context);
  },
});`)}`;

/** A server that reports which modules of OpenTelemetry it loads. */
async function serve(environment: Record<string, string>): Promise<ServerProcess> {
  const LEASEHOLD_DATA_DIR = join(await temporaryFolder('traces'), 'data');
  return startServer({ LEASEHOLD_DATA_DIR, NODE_OPTIONS: `--import ${told}`, ...environment });
}

const loaded = (server: ServerProcess): string[] => server.stderr.filter((line) => line.startsWith('loads '));

const traceId = '0af7651916cd43dd8448eb211c80319c';
const parentId = 'b7ad6b7169203331';
const headers = { 'content-type': 'application/json', traceparent: `00-${traceId}-${parentId}-01` };
const job = { addonId: 'a', jobType: 't', costUnits: 1 };

describe('traces', () => {
  let collector: Collector;
  let spans: readonly CollectedSpan[];
  let jobId: string;
  before(async function () {
    this.timeout(60_000);
    collector = await Collector.start();
    await using server = await serve({
      OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=ours',
      // The server exports nothing before it stops.
      OTEL_BSP_SCHEDULE_DELAY: '3600000',
    });
    using client = connect(server);
    const first = await client.jobs.submitJob(job, { headers: { traceparent: headers.traceparent } });
    jobId = first.job?.jobId ?? '';
    const acquire = `${server.http}/leasehold.v1.LeasesService/AcquireLease`;
    const acquired = await fetch(acquire, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ workerId: 'worker-1' }),
    });
    const { leaseId } = ((await acquired.json()) as { granted: { lease: { leaseId: string } } }).granted
      .lease;
    await fetch(`${server.http}/api/scheduler/lease/${leaseId}/heartbeat`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ worker_id: 'worker-1' }),
    });
    await client.jobs.getJob({ jobId: 'nobody' }).catch(() => {});
    const path = `${server.http}/leasehold.v1.JobsService/SubmitJob`;
    await fetch(path, { method: 'POST', headers, body: JSON.stringify({ ...job, addonId: 'by-connect' }) });
    const body = JSON.stringify({ addon_id: 'a', job_type: 't', cost_units: 1 });
    const submit = `${server.http}/api/scheduler/jobs/submit`;
    await Promise.all([1, 2, 3, 4].map(() => fetch(submit, { method: 'POST', headers, body })));
    await fetch(`${server.http}/api/scheduler/jobs/00000000-0000-4000-8000-000000000000`);
    expect(collector.requests).to.deep.equal([]);
    const { code } = await server.stop();
    expect(code).to.equal(0);
    expect(loaded(server)).to.not.deep.equal([]);
    spans = collector.spans;
  });
  after(() => collector[Symbol.asyncDispose]());

  const below = (parent: CollectedSpan) => spans.filter(({ parentSpanId }) => parentSpanId === parent.spanId);
  const servers = (name: string) => spans.filter((span) => span.name === name && span.kind === 2);

  it('exports all spans to the collector by the time the server stops', () => {
    expect(spans).to.not.deep.equal([]);
    for (const { path, headers: sent } of collector.requests) {
      expect(path).to.equal('/v1/traces');
      expect(sent['content-type']).to.equal('application/x-protobuf');
      expect(sent['x-tenant']).to.equal('ours');
    }
    expect(new Set(spans.map(({ service }) => service))).to.deep.equal(new Set(['leasehold']));
  });

  it('continues the trace of the client over gRPC, Connect and REST', () => {
    const rpcs = servers('leasehold.v1.JobsService/SubmitJob');
    expect(rpcs.map(({ attributes }) => attributes['rpc.system.name']).sort()).to.deep.equal([
      'connectrpc',
      'grpc',
    ]);
    const rest = servers('POST /api/scheduler/jobs/submit');
    expect(rest).to.have.length(4);
    for (const span of [...rpcs, ...rest]) {
      expect([span.traceId, span.parentSpanId, span.status]).to.deep.equal([traceId, parentId, 0]);
    }
    const { 'leasehold.job_id': _, ...attributes } = rest[0]?.attributes ?? {};
    expect(attributes).to.deep.equal({
      'http.request.method': 'POST',
      'http.route': '/api/scheduler/jobs/submit',
      'http.response.status_code': '201',
    });
  });

  it('starts a trace for a client without one, and records how the call ended', () => {
    const [rpc] = servers('leasehold.v1.JobsService/GetJob');
    expect(rpc?.parentSpanId).to.equal('');
    expect(rpc?.attributes['rpc.status_code']).to.equal('NOT_FOUND');
    const [rest] = servers('GET /api/scheduler/jobs/{job_id}');
    expect(rest?.attributes['http.response.status_code']).to.equal('404');
    expect(rest?.traceId).to.not.equal(rpc?.traceId).and.not.equal(traceId);
  });

  it('records the batch of a call, linked to all its calls, with its statements below it', () => {
    const batches = spans.filter(({ name }) => name === 'batch submit');
    const calls = [
      ...servers('leasehold.v1.JobsService/SubmitJob'),
      ...servers('POST /api/scheduler/jobs/submit'),
    ];
    const linked = batches.flatMap(({ links }) => links.map(({ spanId }) => spanId));
    expect(linked).to.have.members(calls.map(({ spanId }) => spanId));
    for (const batch of batches) {
      expect(batch.parentSpanId).to.equal(batch.links[0]?.spanId);
      expect(batch.attributes['leasehold.batch.calls']).to.equal(String(batch.links.length));
      expect(below(batch).map(({ name }) => name)).to.include('INSERT jobs');
    }
  });

  it('records system, operation and table of each statement', () => {
    const asked = spans.filter(({ attributes }) => 'db.system.name' in attributes);
    expect(asked).to.not.deep.equal([]);
    for (const { name, kind, attributes } of asked) {
      expect(kind, name).to.equal(3);
      expect(attributes['db.system.name']).to.equal('postgresql');
      const { 'db.operation.name': operation = '', 'db.collection.name': table } = attributes;
      expect(name).to.equal(table === undefined ? operation : `${operation} ${table}`);
      expect(operation).to.match(/^(INSERT|SELECT|UPDATE|DELETE|TRANSACTION)$/);
    }
  });

  it('records the job, lease and worker of unary calls, over all protocols', () => {
    const idsOf = (name: string) => servers(name).map(({ attributes }) => attributes['leasehold.job_id']);
    const submitted = idsOf('leasehold.v1.JobsService/SubmitJob');
    expect(submitted).to.include(jobId).and.to.not.include(undefined);
    expect(idsOf('POST /api/scheduler/jobs/submit')).to.not.include(undefined);
    expect(idsOf('leasehold.v1.JobsService/GetJob')).to.deep.equal(['nobody']);
    const [acquired] = servers('leasehold.v1.LeasesService/AcquireLease');
    const { 'leasehold.job_id': job, 'leasehold.lease_id': lease, ...rest } = acquired?.attributes ?? {};
    expect(job).to.be.oneOf(submitted);
    expect(rest['leasehold.worker_id']).to.equal('worker-1');
    const [heartbeat] = servers('POST /api/scheduler/lease/{lease_id}/heartbeat');
    expect(heartbeat?.attributes).to.include({
      'leasehold.lease_id': lease,
      'leasehold.worker_id': 'worker-1',
    });
  });

  it('exports no spans of background services', () => {
    const ids = new Set(spans.map(({ spanId }) => spanId));
    for (const { name, kind, parentSpanId } of spans) {
      if (kind !== 2) expect(ids.has(parentSpanId), name).to.equal(true);
    }
  });
});

describe('a server without a collector', () => {
  it('loads no module of OpenTelemetry', async function () {
    this.timeout(60_000);
    await using server = await serve({});
    using client = connect(server);
    await client.jobs.submitJob(job);
    expect((await client.rest('GET', '/readyz')).status).to.equal(200);
    expect((await server.stop()).code).to.equal(0);
    expect(loaded(server)).to.deep.equal([]);
  });
});

describe('a server with a faulty collector', () => {
  it('serves and stops in time if the collector never answers', async function () {
    this.timeout(60_000);
    await using collector = await Collector.start({ answers: false });
    const OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = `${collector.url}/elsewhere`;
    await using server = await serve({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_BSP_SCHEDULE_DELAY: '10' });
    using client = connect(server);
    while (collector.requests.length === 0) await client.jobs.submitJob(job);
    expect(collector.requests[0]?.path).to.equal('/elsewhere');
    await client.jobs.submitJob(job);
    server.signal('SIGTERM');
    const { code, signal } = await server.exited(stopLimitMs);
    expect({ code, signal }).to.deep.equal({ code: 0, signal: null });
  });

  it('serves and logs once that it cannot export if the collector is absent', async function () {
    this.timeout(60_000);
    const gone = await Collector.start();
    const { url } = gone;
    await gone[Symbol.asyncDispose]();
    await using server = await serve({
      OTEL_EXPORTER_OTLP_ENDPOINT: url,
      OTEL_EXPORTER_OTLP_TIMEOUT: '50',
      OTEL_BSP_SCHEDULE_DELAY: '10',
      OTEL_TRACES_SAMPLER: 'no_such_sampler',
    });
    using client = connect(server);
    const warnings = (words: string) => server.log().filter(({ msg }) => String(msg).includes(words));
    while (warnings('traces cannot be sent').length === 0) await client.jobs.submitJob(job);
    for (let i = 0; i < 20; i++) await client.jobs.submitJob(job);
    expect((await server.stop()).code).to.equal(0);
    expect(warnings('traces cannot be sent')).to.have.length(1);
    expect(warnings('OTEL_TRACES_SAMPLER must be one of')).to.have.length(1);
  });
});
