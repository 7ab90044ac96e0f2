/**
 * The guarantee: claims do not scan dead tuples at the head of the queue that an old snapshot keeps from
 * vacuum. No job is lost or skipped because of the low-water marks.
 */
import { expect } from 'chai';
import pg from 'pg';
import { LowWaterMarks } from '../../../src/engine/dispatch/low-water-marks.ts';
import type { Sql } from '../../../src/store/connection/sql.ts';
import { anyCandidate, lockCandidates } from '../../../src/store/sql/queue/candidates.ts';
import { firstWindow, type HeadMarks, noMarks } from '../../../src/store/sql/queue/heads.ts';
import { probeHeads } from '../../../src/store/sql/queue/probe-heads.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { anyJob, caller, engineOn, silentLog, submitted, type TestedEngine } from '../../support/jobs.ts';
import { expectGranted, releaseFor } from '../../support/lease-helpers.ts';
import { pagesTouched } from '../../support/rows-touched.ts';

/** Dead tuples at the head of the queue. */
const dead = 20_000;
const waiting = 200;
const stream = 's';

onEveryEngine((kind) => {
  if (kind.name !== 'postgresql') return;
  describe('LowWaterMarks of a queue with dead tuples', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let looker: pg.Client;
    let clockMs = 0;
    let marks: LowWaterMarks;
    before(async function () {
      this.timeout(60_000);
      store = await kind.open();
      engine = engineOn(store.database);
      looker = new pg.Client({ connectionString: store.options.url });
      await looker.connect();
      await submitted(engine, ...Array.from({ length: dead }, () => ({ stream })));
      await looker.query('begin isolation level repeatable read');
      await looker.query('select count(*) from live_jobs');
      await store.database.query('delete from live_jobs', []);
      await submitted(
        engine,
        ...Array.from({ length: waiting }, (_, i) => ({ stream, cost_units: 1 + (i % 2) })),
      );
      marks = new LowWaterMarks({ database: store.database, log: silentLog, clockMs: () => clockMs });
    });
    after(async () => {
      await looker.end();
      await engine.stop();
      await store.close();
    });

    const laneId = async () => {
      const [row] = await store.database.query<{ lane_id: number }>(
        'select min(lane_id) as lane_id from live_jobs',
        [],
      );
      return row?.lane_id as number;
    };
    /** Number of pages that the database reads to find the head. */
    async function pagesFor(json: string | null): Promise<number> {
      const { fromSeq, lane } = {
        fromSeq: json === null ? 0 : (JSON.parse(json)[0].from_seq[2] as number),
        lane: await laneId(),
      };
      const [plan] = await store.database.query<{ 'QUERY PLAN': { Plan: Record<string, number> }[] }>(
        `explain (analyze, buffers, format json) select seq from live_jobs where lane_id = ${lane} and state = 0
          and check_at is null and priority = 2 and seq >= ${fromSeq} order by seq limit 1`,
        [],
      );
      const { Plan } = plan?.['QUERY PLAN'][0] ?? { Plan: {} };
      return (Plan['Shared Hit Blocks'] ?? 0) + (Plan['Shared Read Blocks'] ?? 0);
    }
    async function ripen(): Promise<void> {
      marks.advance([{ lane_id: await laneId(), crowd: null }]);
      await marks.runOnce();
      clockMs += 600;
      await marks.runOnce();
    }

    it('starts at a mark once the mark is old enough, and not before', async () => {
      marks.advance([{ lane_id: await laneId(), crowd: null }]);
      await marks.runOnce();
      expect(marks.json, 'what was just seen does not count yet').to.equal(null);
      const before = await pagesFor(null);
      clockMs += 600;
      await marks.runOnce();
      const [mark] = JSON.parse(marks.json ?? '[]') as { lane_id: number; from_seq: number[] }[];
      const [first] = await store.database.query<{ seq: string }>(
        'select min(seq) as seq from live_jobs',
        [],
      );
      expect(mark?.from_seq[2]).to.equal(Number(first?.seq));
      expect(before).to.be.above(100);
      expect(await pagesFor(marks.json)).to.be.below(before / 10);
    });

    it('finds the same head from the mark as from the front', async () => {
      await ripen();
      const { json } = marks;
      expect(json).to.be.a('string');
      const [lane] = JSON.parse(json as string) as { from_seq: number[] }[];
      const { heads } = await probeHeads(store.database, [
        { spot: { laneId: await laneId() }, priority: 2, fromSeq: 0 },
        { spot: { laneId: await laneId() }, priority: 2, fromSeq: lane?.from_seq[2] as number },
      ]);
      expect(heads[1]?.seq).to.equal(heads[0]?.seq);
      expect(heads[1]?.tookMs).to.be.below(heads[0]?.tookMs as number);
    });

    it('skips dead tuples both when probing availability and when locking candidates', async () => {
      await ripen();
      const filter = { ...anyJob, streams: [stream] };
      const ways = {
        probe: (sql: Sql, lowWaterMarks: HeadMarks) => anyCandidate(sql, filter, lowWaterMarks),
        lock: (sql: Sql, lowWaterMarks: HeadMarks) =>
          lockCandidates(sql, filter, { count: 5, unique: true, window: firstWindow(lowWaterMarks) }),
      };
      for (const [name, way] of Object.entries(ways)) {
        const [fromTheFront, fromMarks] = [
          await pagesTouched(store.database, (sql) => way(sql, noMarks)),
          await pagesTouched(store.database, (sql) => way(sql, marks)),
        ];
        expect(fromMarks, name).to.be.below(fromTheFront / 3);
      }
    });

    it('grants a more urgent job first although it was submitted after the marks', async () => {
      await ripen();
      const [urgent] = await submitted(engine, { stream, priority: 'URGENT' });
      engine.services.lowWaterMarks as unknown as { json: string | null } satisfies { json: string | null };
      expect((await fromMarks()).job.jobId).to.equal(urgent?.jobId);
    });

    it('finds a job that returned to its old position after the next scan from the front', async () => {
      await ripen();
      const [row] = await store.database.query<{ job_id: string }>(
        'select job_id from live_jobs where lane_id = $1 order by priority, seq limit 1',
        [await laneId()],
      );
      await store.database.query('update live_jobs set seq = 1 where job_id = $1', [row?.job_id]);
      clockMs += 60_000;
      await ripen();
      expect((await fromMarks()).job.jobId).to.equal(row?.job_id);
    });

    it('loses no job before its mark: a claim that finds too few scans from the front', async () => {
      await ripen();
      const lane = await laneId();
      await store.database.query(
        'update live_jobs set seq = 2 where lane_id = $1 and priority = 2 and seq = (select max(seq) from live_jobs)',
        [lane],
      );
      let count = 0;
      const [left] = await store.database.query<{ n: number }>(
        'select count(*)::int as n from live_jobs where state = 0',
        [],
      );
      for (; count < (left?.n ?? 0); count++) await fromMarks();
      const [rest] = await store.database.query<{ n: number }>(
        'select count(*)::int as n from live_jobs',
        [],
      );
      expect(rest?.n).to.equal(0);
    });

    /** Acquires the next job of the stream on a server that has these marks. */
    async function fromMarks() {
      const server = engineOn(store.database);
      Object.defineProperty(server.services.lowWaterMarks, 'json', { get: () => marks.json });
      const grant = expectGranted(await server.leases.acquire({ worker_id: 'w', streams: [stream] }, caller));
      await server.leases.release(releaseFor(grant), caller);
      await server.stop();
      return grant;
    }
  });
});
