/**
 * The guarantee: streams on an old connection are asked to leave, then ended, and the connection is cut
 * last.
 */
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { expect } from 'chai';
import type { HealthMonitor } from '../../../src/engine/maintenance/health-monitor.ts';
import { receiveBudget } from '../../../src/lib/http/receive-budget.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { createGrpcServer, type GrpcServer } from '../../../src/rpc/grpc/server.ts';
import { Metrics } from '../../../src/telemetry/metrics.ts';
import { bindingOf, frameFor, HeartbeatClient, ScriptedEngine } from '../../support/heartbeat-streams.ts';
import { silentLog } from '../../support/jobs.ts';

describe('an old gRPC connection', () => {
  let engine: ScriptedEngine;
  let server: GrpcServer;
  let address: string;
  beforeEach(async () => {
    engine = new ScriptedEngine();
    engine.eager = true;
    server = createGrpcServer({
      bindings: [bindingOf(engine)],
      health: { onReady: () => {} } as unknown as HealthMonitor,
      metrics: new Metrics(),
      log: silentLog,
      receiving: receiveBudget,
      bounds: { idleS: 300, ageS: 1, times: { leaveMs: 500, graceMs: 1_500 } },
    });
    const { host, port } = await server.listen({ host: '127.0.0.1', port: 0 });
    address = `${host}:${port}`;
  });
  afterEach(() => server.stop(1_000));

  it('ends heartbeat streams that do not leave, with OK', async () => {
    using client = new HeartbeatClient(address);
    client.send(frameFor([newId()]));
    await client.hears(1);
    expect(await client.ended).to.include({ code: 0 });
  });

  it('is cut after the time of grace, even while a call is open', async () => {
    const session = connectHttp2(`http://${address}`);
    session.on('error', () => {});
    // Its message never comes, so the call stays open.
    const stream = session.request({
      ':method': 'POST',
      ':path': '/leasehold.v1.LeasesService/Heartbeat',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    stream.on('error', () => {});
    await once(session, 'goaway');
    const since = performance.now();
    await once(session, 'close');
    expect(performance.now() - since).to.be.above(1_000);
  });
});
