import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { expect } from 'chai';
import { StatsService, type WatchSnapshotsResponse } from '../../../gen/leasehold/v1/stats_pb.js';
import { onEveryEngine } from '../../support/engines.ts';
import { newAddon, submit } from '../../support/jobs-api.ts';
import { leasedJob, plenty } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { type Connection, expectRpcError, failure, wires } from '../../support/wires.ts';

onEveryEngine((engine) => {
  describe('StatsService', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
    });
    after(() => server.stop());

    for (const [wire, connect] of Object.entries(wires)) {
      describe(`over ${wire}`, () => {
        let connection: Connection;
        let stats: ReturnType<typeof statsOf>;
        before(() => {
          connection = connect(server);
          stats = statsOf(connection);
        });
        after(() => connection.close());

        it('returns a snapshot of all submitters and of one', async () => {
          const addonId = newAddon();
          await submit(server, { addon_id: addonId });
          await leasedJob(server, { addon_id: addonId, cost_units: 2 });
          const { snapshot } = await stats.getSnapshot({ addonId });
          expect(snapshot?.addonId).to.equal(addonId);
          expect(snapshot?.jobs).to.deep.include({
            queued: 1n,
            claimed: 0n,
            running: 1n,
            submittedLast24h: 2n,
          });
          expect(snapshot?.leases).to.deep.include({ active: 1n, grantedLast24h: 1n, expiredLast24h: 0n });
          const all = (await stats.getSnapshot({})).snapshot;
          expect(all?.addonId).to.equal(undefined);
          expect((all?.jobs?.running ?? 0n) > 0n).to.equal(true);
        });

        it('returns a time series, and omits unknown values', async () => {
          const body = await stats.getTimeseries({ metric: 'jobs_submitted', bucket: '1h', range: '2d' });
          expect(body).to.include({ metric: 'jobs_submitted', bucket: '1h' });
          expect(body.addonId).to.equal(undefined);
          expect(body.points).to.have.length(48);
          expect(body.points[0]?.value).to.equal(undefined);
          expect(body.points.at(-1)?.value).to.be.a('number');
          expect((await stats.getTimeseries({ metric: 'jobs_done' })).points).to.have.length(288);
        });

        it('refuses unknown values by name', async () => {
          const refused: [Promise<unknown>, string][] = [
            [stats.getTimeseries({}), 'metric'],
            [stats.getTimeseries({ metric: 'jobs_done', bucket: '2m' }), 'bucket'],
            [stats.getTimeseries({ metric: 'jobs_done', range: '1s' }), 'range'],
            [stats.getSnapshot({ addonId: ' ' }), 'addon_id'],
          ];
          for (const [call, field] of refused) {
            expectRpcError(await failure(call), Code.InvalidArgument, 'invalid_request');
            expect((await failure(call)).message).to.include(field);
          }
          for (const intervalMs of [-1, 0, 199, 60_001]) {
            const stream = stats.watchSnapshots({ intervalMs });
            const error = await failure(first(stream));
            expectRpcError(error, Code.InvalidArgument, 'invalid_request');
            expect(error.message).to.include('interval_ms');
          }
        });

        it('streams snapshots until the client disconnects', async () => {
          const addonId = newAddon();
          const heard: bigint[] = [];
          const gone = new AbortController();
          const over = (async () => {
            for await (const { snapshot } of stats.watchSnapshots(
              { addonId, intervalMs: 200 },
              { signal: gone.signal },
            ))
              heard.push(snapshot?.jobs?.queued ?? -1n);
          })().catch((error: unknown) => ConnectError.from(error).code);
          await eventually('the first snapshot', async () => (heard.length > 0 ? true : undefined));
          expect(heard[0]).to.equal(0n);
          await submit(server, { addon_id: addonId });
          await eventually('a snapshot with the job', async () => (heard.at(-1) === 1n ? true : undefined));
          gone.abort();
          expect(await over).to.equal(Code.Canceled);
        });
      });
    }
  });

  describe('a stream of snapshots', () => {
    it('ends a stream of snapshots when the server stops, whatever the interval', async () => {
      await using server = await startTestServer(engine);
      for (const connect of Object.values(wires)) {
        const connection = connect(server);
        const stream = statsOf(connection).watchSnapshots({ intervalMs: 60_000 })[Symbol.asyncIterator]();
        await stream.next();
        streams.push({ connection, next: stream.next() });
        streams.at(-1)?.next.catch(() => {});
      }
      await server.running.stop();
      for (const { connection, next } of streams.splice(0)) {
        expectRpcError(await failure(next), Code.Unavailable, 'unavailable');
        connection.close();
      }
    });
  });
});

const streams: { connection: Connection; next: Promise<IteratorResult<WatchSnapshotsResponse>> }[] = [];

const statsOf = ({ transport }: Connection) => createClient(StatsService, transport);

async function first<T>(stream: AsyncIterable<T>): Promise<T | undefined> {
  for await (const one of stream) return one;
  return undefined;
}
