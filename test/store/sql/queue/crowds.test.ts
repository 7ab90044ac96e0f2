/**
 * The guarantee: a claim takes the first of all jobs that suit its worker. The rows it touches to find that
 * job do not depend on the number of lanes, idle or full.
 */
import { expect } from 'chai';
import fc from 'fast-check';
import { offerOf } from '../../../../src/domain/jobs/constraints.ts';
import { type Priority, priorities } from '../../../../src/domain/jobs/job.ts';
import type { ClaimFilter } from '../../../../src/domain/queue/claim-filter.ts';
import type { SubmitJob } from '../../../../src/domain/requests/scheduler.ts';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import type { Sql } from '../../../../src/store/connection/sql.ts';
import { claimJobs } from '../../../../src/store/sql/jobs/claim.ts';
import { grantNext } from '../../../../src/store/sql/leases/grant.ts';
import { anyCandidate, lockCandidates } from '../../../../src/store/sql/queue/candidates.ts';
import { crowdKeysOf, ownLanesMax } from '../../../../src/store/sql/queue/crowds.ts';
import { firstWindow, type HeadMarks, noMarks } from '../../../../src/store/sql/queue/heads.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { anyJob, caller, engineOn, engineSettings, type TestedEngine } from '../../../support/jobs.ts';
import { rowsTouched } from '../../../support/rows-touched.ts';

const tables = ['lanes', 'live_jobs', 'requirement_paths'];
const plain = { addon_id: 'a', job_type: 't', cost_units: 1 };

const submitAll = async (
  engine: TestedEngine,
  commands: readonly Partial<SubmitJob>[],
): Promise<string[]> => {
  const drafts = commands.map((command) => draft({ ...plain, ...command }, false, engine.settings));
  const answers = await engine.jobs.submitMany(drafts, caller);
  return answers.map((answer) => (answer instanceof Error ? '' : answer.jobId));
};

const many = (count: number, make: (i: number) => Partial<SubmitJob>) =>
  Array.from({ length: count }, (_, i) => make(i));

/** Each shape gives every job a lane of its own. */
const shapes: Record<string, (i: number) => Partial<SubmitJob>> = {
  types: (i) => ({ job_type: `t${i}` }),
  submitters: (i) => ({ addon_id: `a${i}` }),
  streams: (i) => ({ stream: `s${i}` }),
  'lanes of one stream': (i) => ({ stream: 's', job_type: `t${i}` }),
  requirements: (i) => ({ constraints: { [`x${i}_required`]: true } }),
  'requirements beside one that the worker meets': (i) => ({
    constraints: { a_required: true, [`x${i}_required`]: true },
  }),
  'kinds of heavy jobs': (i) => ({ constraints: { [`x${i}_heavy`]: true } }),
  'unique jobs': (i) => ({ job_type: `t${i}`, unique: true }),
};

const filters: Record<string, ClaimFilter> = {
  'no filter': anyJob,
  'a type': { ...anyJob, jobTypes: ['mine', 'yours'] },
  'a submitter': { ...anyJob, addonId: 'me' },
  'a type and a submitter': { ...anyJob, addonId: 'me', jobTypes: ['mine'] },
  'a stream': { ...anyJob, streams: ['s', 'u'] },
  capabilities: { ...anyJob, available: ['a', 'b'], refused: ['c'] },
  max_units: { ...anyJob, maxCostUnits: 3 },
};

const statements = (
  filter: ClaimFilter,
  lowWaterMarks: HeadMarks,
): Record<string, (sql: Sql) => Promise<unknown>> => ({
  anyCandidate: (sql) => anyCandidate(sql, filter, lowWaterMarks),
  lockCandidates: (sql) =>
    lockCandidates(sql, filter, { count: 3, unique: true, window: firstWindow(lowWaterMarks) }),
  'lockCandidates without unique jobs': (sql) =>
    lockCandidates(sql, filter, { count: 3, unique: false, window: firstWindow(lowWaterMarks) }),
  claimJobs: (sql) =>
    claimJobs(sql, filter, [{ workerId: 'w', holder: null, requestId: null }], {
      claimTtlMs: 60_000,
      capacityTotal: 100,
      lowWaterMarks: lowWaterMarks,
    }),
  grantNext: (sql) =>
    grantNext(
      sql,
      [
        {
          leaseId: '00000000-0000-4000-8000-000000000001',
          token: '00000000-0000-4000-8000-000000000002',
          workerId: 'w',
          holder: null,
          requestId: null,
          state: 'LEASED',
          ttlS: 60,
          deliveryS: null,
        },
      ],
      {
        filter,
        ttlS: 60,
        graceS: 0,
        keepsMessages: false,
        totalUnlessSet: 100,
        lowWaterMarks: lowWaterMarks,
      },
    ),
});

describe('a claim among many lanes (A5)', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database, { ...engineSettings, capacityTotal: 1_000 });
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    /** Number of rows that each statement touches with each filter. Its changes are rolled back. */
    async function touched(plan: string, places: HeadMarks): Promise<Record<string, number>> {
      const rows: Record<string, number> = {};
      for (const [filterName, filter] of Object.entries(filters)) {
        for (const [name, statement] of Object.entries(statements(filter, places))) {
          rows[`${name}, ${filterName}, ${plan}`] = await rowsTouched(
            store.database,
            async (sql) => {
              await sql.query(`set local plan_cache_mode = ${plan}`, []);
              await sql.query('savepoint before', []);
              await statement(sql);
              await sql.query('rollback to savepoint before', []);
            },
            tables,
          );
        }
      }
      return rows;
    }

    async function expectFewRows(when: string): Promise<void> {
      const marked = { json: JSON.stringify([{ lane_id: 1, from_seq: [0, 0, 1, 0] }]), advance() {} };
      for (const plan of ['force_custom_plan', 'force_generic_plan']) {
        for (const places of plan === 'force_generic_plan' ? [noMarks, marked] : [noMarks]) {
          for (const [name, rows] of Object.entries(await touched(plan, places)))
            expect(rows, `${name} ${when}`).to.be.below(700);
        }
      }
    }

    for (const [shape, make] of Object.entries(shapes)) {
      it(`touches few rows when more than a thousand ${shape} each have a job`, async function () {
        this.timeout(120_000);
        await store.database.query('analyze', []);
        await submitAll(engine, many(1_200, make));
        await submitAll(
          engine,
          many(50, () => ({ addon_id: 'me', job_type: 'mine' })),
        );
        await expectFewRows('after an ANALYZE of empty tables');
        await store.database.query('analyze', []);
        await expectFewRows('after an ANALYZE');
        const [from, to] = [
          `state = 1, claimed_by = 'w', check_at = now() + interval '1 hour'`,
          'state = 0, check_at = null',
        ];
        await store.database.query(`update live_jobs set ${from}`, []);
        await store.database.query('analyze', []);
        await store.database.query(`update live_jobs set ${to}`, []);
        await expectFewRows('after an ANALYZE with everything claimed');
        await store.database.query('delete from live_jobs', []);
        await expectFewRows('with idle lanes');
      });
    }
  });
});

describe('the job that a claim takes among many lanes (A5)', () => {
  const names = ['a', 'b', 'c'];
  const words = fc.constantFrom('x', 'y', 'z');
  const jobs = fc.array(
    fc.record({
      job_type: words,
      addon_id: words,
      stream: fc.option(fc.constantFrom('s', 'u'), { nil: undefined, freq: 2 }),
      priority: fc.constantFrom(...priorities),
      cost_units: fc.integer({ min: 1, max: 4 }),
      unique: fc.boolean(),
      requires: fc.subarray(names),
      heavy: fc.subarray(names),
    }),
    { minLength: 1, maxLength: 60 },
  );
  const askers = fc.array(
    fc.record({
      streams: fc.option(fc.shuffledSubarray(['s', 'u'], { minLength: 1 })),
      addonId: fc.option(words),
      jobTypes: fc.option(fc.uniqueArray(words, { minLength: 1 })),
      maxCostUnits: fc.option(fc.integer({ min: 1, max: 4 })),
      available: fc.subarray(names),
      refused: fc.subarray(names),
      unique: fc.boolean(),
      count: fc.integer({ min: 1, max: 20 }),
    }),
    { minLength: 3, maxLength: 8 },
  );

  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    it('takes the first suitable job by stream, priority and position, as a full scan does', async function () {
      this.timeout(240_000);
      // The model's streams have a few own lanes left; later lanes are crowded.
      for (const stream of [undefined, 's', 'u'])
        await submitAll(
          engine,
          many(ownLanesMax - 3, (i) => ({ job_type: `filler${i}`, ...(stream && { stream }) })),
        );
      await store.database.query('delete from live_jobs', []);
      let crowdedJobs = 0;
      const flags = (stems: readonly string[], suffix: string, value: boolean) =>
        Object.fromEntries(stems.map((stem) => [`${stem}_${suffix}`, value]));
      const check = fc.asyncProperty(jobs, askers, async (queued, asked) => {
        await store.database.query('delete from live_jobs', []);
        const commands = queued.map(({ requires, heavy, stream, ...job }) => ({
          ...job,
          ...(stream === undefined ? {} : { stream }),
          constraints: { ...flags(requires, 'required', true), ...flags(heavy, 'heavy', true) },
        }));
        const ids = await submitAll(engine, commands);
        const [row] = await store.database.query<{ n: number }>(
          'select count(crowd)::int as n from live_jobs',
          [],
        );
        crowdedJobs += row?.n ?? 0;
        for (const { count, unique, ...filter } of asked) {
          const offer = offerOf({
            ...flags(filter.available, 'available', true),
            ...flags(filter.refused, 'heavy', false),
          });
          const streams = filter.streams ?? [undefined];
          const suitable = queued
            .map((job, i) => ({ ...job, id: ids[i], i, turn: streams.indexOf(job.stream as never) }))
            .filter(
              (job) =>
                job.turn >= 0 &&
                (filter.addonId === null || job.addon_id === filter.addonId) &&
                (filter.jobTypes === null || filter.jobTypes.includes(job.job_type)) &&
                (filter.maxCostUnits === null || job.cost_units <= filter.maxCostUnits) &&
                job.requires.every((name) => offer.available.includes(name)) &&
                !job.heavy.some((name) => offer.refused.includes(name)) &&
                (unique || !job.unique),
            )
            .sort((a, b) => a.turn - b.turn || rank(a.priority) - rank(b.priority) || a.i - b.i)
            .slice(0, count)
            .map(({ id }) => id);
          const wanted = { count, unique, window: firstWindow(noMarks) };
          const { candidates } = await store.database.transaction((sql) =>
            lockCandidates(sql, { ...filter, ...offer }, wanted),
          );
          expect(candidates.map(({ jobId }) => jobId)).to.deep.equal(suitable);
          // The availability probe does not exclude unique jobs.
          if (unique)
            expect(await anyCandidate(store.database, { ...filter, ...offer }, noMarks)).to.equal(
              suitable.length > 0,
            );
        }
      });
      await fc.assert(check, { numRuns: kind.name === 'postgresql' ? 120 : 40 });
      expect(crowdedJobs, 'crowded jobs that the model has met').to.be.above(100);
    });
  });
  const rank = (priority: Priority): number => priorities.indexOf(priority);
});

describe('the keys of a crowd', () => {
  it('computes different keys by stream, requirements and uniqueness', () => {
    const lane = { stream: 's', addonId: 'a', jobType: 't', requires: ['x', 'y'], heavy: [], unique: false };
    const others = [
      lane,
      { ...lane, stream: null },
      { ...lane, unique: true },
      { ...lane, requires: ['x'] },
      { ...lane, requires: ['xy'] },
    ];
    expect(new Set(others.map((other) => crowdKeysOf(other).crowd)).size).to.equal(others.length);
    // The name of a type differs from that of a submitter.
    const same = crowdKeysOf({ ...lane, addonId: 'same', jobType: 'same' });
    expect(same.crowdBoth).not.to.equal(same.crowd);
    expect(same.crowdType).not.to.equal(same.crowdAddon);
  });
});
