/**
 * The guarantee: a value that all jobs of a batch share is sent to the database once, and a value that none
 * has is not sent.
 */
import { expect } from 'chai';
import fc from 'fast-check';
import type { SubmitJob } from '../../../../src/domain/requests/scheduler.ts';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import { readJobs } from '../../../../src/store/sql/jobs/read.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { engineOn, submittedIds, type TestedEngine } from '../../../support/jobs.ts';

const jobsMax = 6;
const word = fc.constantFrom('a', 'b "quoted"', 'c\\d', 'é', 'NULL');

/** Values of a column, one for each job: all the same, or independent. */
const column = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T[]> =>
  fc.oneof(
    value.map((one) => new Array<T>(jobsMax).fill(one)),
    fc.array(value, { minLength: jobsMax, maxLength: jobsMax }),
  );
const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });

const columns = fc.record({
  addon_id: column(word),
  job_type: column(word),
  priority: column(fc.constantFrom('LOW', 'NORMAL', 'HIGH', 'URGENT')),
  cost_units: column(fc.integer({ min: 1, max: 3 })),
  constraints: column(maybe(fc.constantFrom({}, { gpu_required: true }, { io_heavy: false }))),
  payload: column(maybe(fc.constantFrom({}, { n: 1 }, { text: '"\\' }))),
  stream: column(maybe(word)),
  unique: column(maybe(fc.boolean())),
  tags: column(maybe(fc.array(word, { maxLength: 2 }))),
  max_runtime_s: column(maybe(fc.constantFrom(10, 20))),
  max_attempts: column(maybe(fc.constantFrom(1, 5))),
  retry_backoff_s: column(maybe(fc.constantFrom(0, 7))),
  run_at: column(maybe(fc.constantFrom('2020-01-01T00:00:00Z', '2099-12-31T23:59:59.999Z'))),
});

describe('a batch of submissions', () => {
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

    it('stores every job completely, whatever the jobs have in common', async function () {
      this.timeout(60_000);
      let batch = 0;
      await fc.assert(
        fc.asyncProperty(
          columns,
          fc.nat({ max: jobsMax }),
          fc.constantFrom('none', 'some', 'all'),
          async (values, count, keyed) => {
            batch++;
            const drafts = Array.from({ length: count }, (_, i) => {
              const given = Object.entries(values).map(([name, all]) => [name, all[i]]);
              const isKeyed = keyed === 'all' || (keyed === 'some' && i % 2 === 1);
              const key = isKeyed ? { client_request_id: `${batch} ${i}` } : {};
              return draft({ ...Object.fromEntries(given), ...key } as SubmitJob, false, engine.settings);
            });
            const ids = await submittedIds(engine, drafts);
            const kept = await readJobs(store.database, ids);
            expect(kept.size).to.equal(count);
            for (const [i, one] of drafts.entries()) {
              expect(kept.get(ids[i] ?? '')?.job).to.deep.include({
                addonId: one.addonId,
                jobType: one.jobType,
                priority: one.shown.priority,
                costUnits: one.costUnits,
                constraints: one.shown.constraints,
                payload: one.shown.payload,
                stream: one.stream,
                unique: one.unique,
                tags: one.tags,
                maxRuntimeS: one.maxRuntimeS,
                maxAttempts: one.maxAttempts,
                retryBackoffS: one.retryBackoffS,
                runAtMs: one.runAtMs,
                clientRequestId: one.clientRequestId,
              });
            }
          },
        ),
        { numRuns: 60 },
      );
    });
  });
});
