/** The metrics that Prometheus reads from a server over HTTP. */
import { readFileSync } from 'node:fs';
import { createClient } from '@connectrpc/connect';
import { expect } from 'chai';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { frame, HeartbeatClient } from '../support/heartbeat-streams.ts';
import { ask, claimedJob, get, jobsPath, submit } from '../support/jobs-api.ts';
import { heartbeat, leasedJob, leasePath, nowhere, release } from '../support/leases-api.ts';
import { type MetricsText, readMetrics } from '../support/metrics-text.ts';
import { publicNamesFile, readNames } from '../support/name-list.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';
import { wires } from '../support/wires.ts';

const jobsRpc = (name: string) => `leasehold.v1.JobsService/${name}`;
const services = [JobsService, LeasesService, StatsService, FileLeasesService];

onEveryEngine((engine) => {
  describe('/metrics', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: 1_000 } });
    });
    after(() => server.stop());

    const read = (): Promise<MetricsText> => readMetrics(server.http);
    const restCount = (text: MetricsText, method: string, route: string, status: number) =>
      text.value('leasehold_http_requests_total', { method, route, status: String(status) }) ?? 0;

    it('prints metrics in the text format of Prometheus, version 0.0.4', async () => {
      const answer = await fetch(`${server.http}/metrics`);
      expect(answer.status).to.equal(200);
      expect(answer.headers.get('content-type')).to.equal('text/plain; version=0.0.4; charset=utf-8');
      expect(await answer.text()).to.match(/^(# (HELP|TYPE) \w+ .+\n|\w+(\{.*\})? \S+\n)+$/);
    });

    it('exposes exactly the metrics of the reference, with their types and help', async () => {
      const reference = readFileSync(new URL('../../docs/reference/metrics.md', import.meta.url), 'utf8');
      const rows = [...reference.matchAll(/^\| `(\w+)` \| (\w+) \| [^|]* \| (.+) \|$/gm)];
      const listed = rows.map(([, name, type, help]) => ({ name, type: type?.toUpperCase(), help }));
      expect((await read()).families).to.have.deep.members(listed);
    });

    it('names every metric with a unit, a total or the counted thing, under its own prefixes', async () => {
      const { families, lines } = await read();
      for (const { name, type } of families) {
        expect(name).to.match(/^(leasehold|nodejs|process)_[a-z_]+(p50|p90|p99)?[a-z_]+$/);
        if (type === 'COUNTER') expect(name).to.match(/_total$/);
        else expect(name).to.not.match(/_total$/);
        expect(name).to.not.match(/(_ms|_millis|_kb|_mb)(_|$)/);
      }
      const parts = families.flatMap(({ name, type }) => {
        if (type === 'HISTOGRAM') return [`${name}_bucket`, `${name}_sum`, `${name}_count`];
        return type === 'SUMMARY' ? [name, `${name}_sum`, `${name}_count`] : [name];
      });
      expect(parts).to.include.members(lines);
    });

    it('counts requests by the template of their route and by status', async () => {
      const before = await read();
      const { job_id } = await submit(server, {});
      await get(server, `${jobsPath}/${job_id}`);
      await get(server, `${jobsPath}/${nowhere}`);
      await ask(server, `${jobsPath}/submit`, { method: 'POST', body: '{' });
      const after = await read();
      const more = (method: string, route: string, status: number) =>
        restCount(after, method, route, status) - restCount(before, method, route, status);
      expect(more('POST', '/api/scheduler/jobs/submit', 201)).to.equal(1);
      expect(more('GET', '/api/scheduler/jobs/{job_id}', 200)).to.equal(1);
      expect(more('GET', '/api/scheduler/jobs/{job_id}', 404)).to.equal(1);
      const submitted = { method: 'POST', route: '/api/scheduler/jobs/submit' };
      const timed = (text: MetricsText) =>
        text.value('leasehold_http_duration_seconds_count', submitted) ?? 0;
      expect(timed(after) - timed(before)).to.equal(2);
      expect(after.value('leasehold_http_open_requests', submitted)).to.equal(undefined);
      expect(after.text).to.not.include(job_id);
    });

    it('counts requests without a route as one, whatever their path and method', async () => {
      const before = await read();
      await get(server, '/no/such/path');
      await get(server, `/${'x'.repeat(500)}`);
      await ask(server, `${jobsPath}/submit`, { method: 'DELETE' });
      const after = await read();
      const more = (status: number) =>
        restCount(after, 'other', 'other', status) - restCount(before, 'other', 'other', status);
      expect([more(404), more(405)]).to.deep.equal([2, 1]);
      expect(after.text).to.not.include('such').and.not.include('xxx').and.not.include('DELETE');
    });

    for (const [wire, transport] of [
      ['gRPC, with the client of grpc-js', 'grpc'],
      ['Connect in JSON', 'http'],
    ] as const) {
      it(`counts RPCs over ${wire} by method and code, refused ones too`, async () => {
        using connection = held((wires[wire] as (typeof wires)[string])(server));
        const { jobs } = connection;
        const before = await read();
        const { job } = await jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 });
        await jobs.getJob({ jobId: job?.jobId ?? '' });
        await jobs.getJob({ jobId: nowhere }).catch(() => {});
        await jobs.submitJob({ addonId: 'a' }).catch(() => {});
        const after = await read();
        const more = (method: string, code: string) => {
          const labels = { transport, method: jobsRpc(method), code };
          const count = (text: MetricsText) => text.value('leasehold_rpc_requests_total', labels) ?? 0;
          return count(after) - count(before);
        };
        expect(more('SubmitJob', 'OK')).to.equal(1);
        expect(more('SubmitJob', 'INVALID_ARGUMENT')).to.equal(1);
        expect(more('GetJob', 'OK')).to.equal(1);
        expect(more('GetJob', 'NOT_FOUND')).to.equal(1);
        const labels = { transport, method: jobsRpc('GetJob') };
        expect(after.value('leasehold_rpc_duration_seconds_count', labels)).to.be.at.least(2);
        expect(after.value('leasehold_rpc_open_requests', labels)).to.equal(undefined);
      });
    }

    it('counts messages that cannot be decoded and never reach a method', async () => {
      const path = `/${jobsRpc('GetJob')}`;
      const headers = { 'content-type': 'application/json' };
      await ask(server, path, { method: 'POST', headers, body: '{"jobId":5}' });
      const labels = { transport: 'http', method: jobsRpc('GetJob'), code: 'INVALID_ARGUMENT' };
      expect((await read()).value('leasehold_rpc_requests_total', labels)).to.be.at.least(1);
    });

    it('shows an open stream, counts its messages, and records how it ended', async () => {
      using stream = new HeartbeatClient(server.grpc);
      const { lease } = await leasedJob(server);
      const method = 'leasehold.v1.LeasesService/StreamHeartbeats';
      const before = await read();
      stream.send(frame([{ leaseId: lease.lease_id, workerId: 'worker-1' }]));
      await stream.hears(1);
      stream.send(frame([{ leaseId: nowhere, workerId: 'worker-1' }]));
      await stream.hears(2);
      const during = await read();
      expect(during.value('leasehold_rpc_open_requests', { transport: 'grpc', method })).to.equal(1);
      expect(during.value('leasehold_heartbeat_streams')).to.equal(1);
      for (const direction of ['received', 'sent']) {
        expect(during.value('leasehold_rpc_stream_messages_total', { method, direction })).to.equal(2);
      }
      stream.end();
      await stream.ended;
      const after = await read();
      expect(after.value('leasehold_rpc_requests_total', { method, code: 'OK' })).to.equal(1);
      expect(after.value('leasehold_rpc_open_requests', { transport: 'grpc', method })).to.equal(undefined);
      const more = (verdict: string) => {
        const labels = { of: 'leases', verdict };
        const count = (text: MetricsText) => text.value('leasehold_heartbeats_total', labels) ?? 0;
        return count(after) - count(before);
      };
      expect([more('extended'), more('lost')]).to.deep.equal([1, 1]);
    });

    it('shows callers that wait for work, and counts those that disconnected', async () => {
      using connection = held((wires['gRPC, with the client of grpc-js'] as (typeof wires)[string])(server));
      const leases = createClient(LeasesService, connection.transport);
      const gone = new AbortController();
      const ask = { workerId: 'w', addonId: 'nobody', waitMs: 60_000 };
      const waiting = leases.acquireLease(ask, { signal: gone.signal }).catch(() => {});
      await eventually('a caller that waits', async () =>
        (await read()).value('leasehold_waiting_claims') === 1 ? true : undefined,
      );
      const method = 'leasehold.v1.LeasesService/AcquireLease';
      expect((await read()).value('leasehold_rpc_open_requests', { transport: 'grpc', method })).to.equal(1);
      gone.abort();
      await waiting;
      const labels = { transport: 'grpc', method, code: 'CANCELLED' };
      await eventually('the call to be counted', async () =>
        (await read()).value('leasehold_rpc_requests_total', labels) === 1 ? true : undefined,
      );
      expect((await read()).value('leasehold_waiting_claims')).to.equal(0);
    });

    it('counts heartbeats by their verdict, also those that need a second check', async () => {
      const { lease } = await leasedJob(server);
      const { lease: over } = await leasedJob(server);
      await release(server, over.lease_id);
      const count = (text: MetricsText, verdict: string) =>
        text.value('leasehold_heartbeats_total', { of: 'leases', verdict }) ?? 0;
      const before = await read();
      expect((await heartbeat(server, lease.lease_id)).status).to.equal(200);
      expect((await heartbeat(server, lease.lease_id, { worker_id: 'stranger' })).status).to.equal(403);
      expect((await heartbeat(server, over.lease_id)).status).to.equal(409);
      expect((await heartbeat(server, nowhere)).status).to.equal(404);
      const after = await read();
      expect(count(after, 'extended') - count(before, 'extended')).to.equal(1);
      expect(count(after, 'lost') - count(before, 'lost')).to.equal(3);
      await release(server, lease.lease_id);
    });

    it('measures the sizes and durations of batches', async () => {
      const count = (text: MetricsText) =>
        text.value('leasehold_batch_calls_count', { batch: 'submit' }) ?? 0;
      const calls = (text: MetricsText) => text.value('leasehold_batch_calls_sum', { batch: 'submit' }) ?? 0;
      const before = await read();
      await Promise.all(Array.from({ length: 20 }, () => submit(server, {})));
      const after = await read();
      expect(calls(after) - calls(before)).to.equal(20);
      expect(count(after) - count(before)).to.be.within(1, 20);
      expect(after.value('leasehold_batch_duration_seconds_count', { batch: 'submit' })).to.equal(
        count(after),
      );
      expect(after.value('leasehold_batch_waiting_calls', { batch: 'submit' })).to.equal(0);
      expect(after.value('leasehold_batches_in_flight', { batch: 'submit' })).to.equal(0);
      expect(after.value('leasehold_database_duration_seconds_count', { kind: 'statement' })).to.be.above(0);
    });

    it('reports the process, its services and its database', async () => {
      const text = await eventually('a round of each service', async () => {
        const found = await read();
        const rounds = (service: string) =>
          found.value('leasehold_service_round_duration_seconds_count', { service }) ?? 0;
        const names = ['reaper', 'file_reaper', 'pulse', 'capacity_audit'];
        return names.every((name) => rounds(name) > 0) ? found : undefined;
      });
      expect(text.value('leasehold_build_info', { database: engine.name })).to.equal(1);
      expect(text.value('leasehold_database_up')).to.equal(1);
      expect(text.value('leasehold_database_pool_max_connections')).to.be.above(0);
      expect(text.value('leasehold_database_pool_connections', { state: 'idle' })).to.be.at.least(0);
      expect(text.value('leasehold_history_days_ahead')).to.be.within(6, 8);
      expect(text.value('process_cpu_seconds_total')).to.be.above(0);
      expect(text.value('nodejs_eventloop_lag_seconds')).to.be.within(0, 10);
      expect(text.value('process_resident_memory_bytes')).to.be.above(1e6);
      expect(text.value('process_start_time_seconds')).to.be.within(1e9, Date.now() / 1000);
      expect(text.value('leasehold_heap_bytes', { kind: 'used' })).to.be.above(1e6);
      expect(text.value('leasehold_eventloop_seconds_total', { state: 'active' })).to.be.above(0);
      expect(text.value('leasehold_eventloop_delay_seconds_count')).to.be.at.least(0);
    });

    it('uses no label that the list of public names lacks', async () => {
      const { metrics = [] } = readNames(publicNamesFile);
      const declared = new Map(
        metrics.map((line) => {
          const [, name = '', labels = ''] = /^(\w+) = \w+(?: \{(.*)\})?$/.exec(line) ?? [];
          return [name, labels.split(', ')];
        }),
      );
      const text = await read();
      for (const { name, type } of text.families) {
        const ownLabels: readonly string[] = { HISTOGRAM: ['le'], SUMMARY: ['quantile'] }[type] ?? [];
        const lines = ['', '_bucket', '_sum', '_count'].flatMap((suffix) => text.labelSets(name + suffix));
        const labels = new Set(lines.flatMap((line) => Object.keys(line)));
        const known = [...(declared.get(name) ?? []), ...ownLabels];
        for (const label of labels) expect(known, name).to.include(label);
      }
    });

    it('lists every method and route from the start, and no others', async () => {
      const known = new Set(
        services.flatMap(({ typeName, methods }) => methods.map(({ name }) => `${typeName}/${name}`)),
      );
      const text = await read();
      const methods = text.labelled('leasehold_rpc_requests_total', 'method');
      expect([...known]).to.include.members(methods);
      for (const route of text.labelled('leasehold_http_requests_total', 'route')) {
        expect(route).to.match(/^(other|(\/([a-z_.]+|\{\w+\}))+\/?)$/);
      }
    });
  });

  describe('/metrics for the queue', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: 40 } });
    });
    after(() => server.stop());

    it('reports the jobs in the queue, their age, and the capacity', async () => {
      const first = await readMetrics(server.http);
      expect(first.value('leasehold_queue_ready_jobs')).to.equal(0);
      expect(first.value('leasehold_queue_oldest_age_seconds')).to.equal(0);
      await leasedJob(server, { cost_units: 7 });
      await claimedJob(server, { cost_units: 5 });
      for (let i = 0; i < 3; i++) await submit(server, { priority: i === 0 ? 'LOW' : 'HIGH' });
      await submit(server, { run_at: new Date(Date.now() + 3_600_000).toISOString() });
      // The last job in the queue counts, too.
      await server.database.query(
        "update live_jobs set updated_at = updated_at - interval '90 seconds' where state = 0 and priority = (select max(priority) from live_jobs where state = 0)",
        [],
      );
      const text = await eventually('a second reading of the queue', async () => {
        const found = await readMetrics(server.http);
        return found.value('leasehold_queue_ready_jobs') === 3 ? found : undefined;
      });
      expect(text.value('leasehold_queue_jobs')).to.equal(4);
      expect(text.value('leasehold_queue_oldest_age_seconds')).to.be.within(90, 150);
      expect(text.value('leasehold_active_leases')).to.equal(1);
      expect(text.value('leasehold_active_claims')).to.equal(1);
      const units = (kind: string) => text.value('leasehold_capacity_units', { kind });
      expect(['total', 'usable', 'used', 'reserved', 'available'].map(units)).to.deep.equal([
        40, 40, 7, 5, 33,
      ]);
      expect((await get(server, `${leasePath}/${nowhere}`)).status).to.equal(404);
    });
  });
});

/** A connection that ends with its test. */
const held = <Connection extends { close(): void }>(connection: Connection) =>
  Object.assign(connection, { [Symbol.dispose]: () => connection.close() });
