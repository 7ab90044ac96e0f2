import { expect } from 'chai';
import type { ClaimFilter } from '../../../../src/domain/queue/claim-filter.ts';
import type { Database } from '../../../../src/store/database.ts';
import { openDatabase } from '../../../../src/store/open.ts';
import { type ClaimSlot, claimJobs as claimWithCounts } from '../../../../src/store/sql/jobs/claim.ts';
import { type NewJob, submitJobs } from '../../../../src/store/sql/jobs/submit.ts';
import { noMarks } from '../../../../src/store/sql/queue/heads.ts';
import { type LaneTarget, laneText, makeLanes } from '../../../../src/store/sql/queue/lanes.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { anyJob } from '../../../support/jobs.ts';

const ttlMs = 60_000;

const rulesFor = (claimTtlMs: number) => ({
  claimTtlMs,
  capacityTotal: 100,
  lowWaterMarks: noMarks,
});

const claimJobs = async (database: Database, filter: ClaimFilter, slots: readonly ClaimSlot[], ttl: number) =>
  (await claimWithCounts(database, filter, slots, rulesFor(ttl))).records;

async function submit(database: Database, count: number, more: Partial<NewJob> = {}): Promise<string[]> {
  const lane = {
    stream: null,
    addonId: 'a',
    jobType: more.jobType ?? 't',
    requires: [],
    heavy: [],
    unique: false,
  };
  const words = laneText(lane);
  const place = (await makeLanes(database, new Map([[words, lane]]))).get(words) as LaneTarget;
  const jobs: NewJob[] = Array.from({ length: count }, () => ({
    addonId: 'a',
    jobType: 't',
    stream: null,
    priority: 2,
    costUnits: 1,
    constraints: '{}',
    payload: '{"n":1}',
    clientRequestId: null,
    unique: false,
    tags: [],
    maxRuntimeS: null,
    maxAttempts: 1,
    retryBackoffS: 2,
    runAtMs: null,
    bytes: 10,
    ...more,
  }));
  const submitted = await submitJobs(database, jobs, { places: jobs.map(() => place), keepsMessages: false });
  if (submitted.kind !== 'submitted') throw new Error('the lane is gone');
  return submitted.jobIds.filter((id) => id !== null);
}

const slots = (workerId: string, count: number) =>
  Array.from({ length: count }, () => ({ workerId, holder: null, requestId: null }));
const idsOf = (records: readonly { job_id: string }[]) => records.map(({ job_id }) => job_id);

describe('claimJobs', () => {
  onEveryEngine((engine) => {
    let store: TestDatabase;
    beforeEach(async () => {
      store = await engine.open();
    });
    afterEach(() => store.close());

    it('takes the most urgent job first, then the oldest, across all lanes', async () => {
      const { database } = store;
      const normal = await submit(database, 3, { jobType: 'one' });
      const later = await submit(database, 2, { jobType: 'two' });
      const urgent = await submit(database, 2, { jobType: 'two', priority: 0 });
      const claimed = await claimJobs(database, anyJob, slots('w', 10), ttlMs);
      expect(idsOf(claimed)).to.deep.equal([...urgent, ...normal, ...later]);
    });

    it('assigns jobs to slots in order, and leaves slots empty when jobs run out', async () => {
      const { database } = store;
      const ids = await submit(database, 3);
      const claimed = await claimJobs(database, anyJob, [...slots('w1', 2), ...slots('w2', 2)], ttlMs);
      expect(claimed.map(({ job_id, claimed_by }) => [job_id, claimed_by])).to.deep.equal([
        [ids[0], 'w1'],
        [ids[1], 'w1'],
        [ids[2], 'w2'],
      ]);
      expect(await claimJobs(database, anyJob, slots('w3', 1), ttlMs)).to.deep.equal([]);
    });

    it('skips more jobs that cost too much than it reads at once', async () => {
      const { database } = store;
      await submit(database, 300, { costUnits: 50 });
      const [cheap] = await submit(database, 1, { costUnits: 5 });
      const claimed = await claimJobs(database, { ...anyJob, maxCostUnits: 10 }, slots('w', 1), ttlMs);
      expect(idsOf(claimed)).to.deep.equal([cheap]);
    });

    it('claims jobs around one above the total capacity, and returns where that was found', async () => {
      const { database } = store;
      const [first] = await submit(database, 1);
      await submit(database, 1, { costUnits: 101 });
      const [last] = await submit(database, 1);
      const claims = await claimWithCounts(database, anyJob, slots('w', 3), rulesFor(ttlMs));
      expect(idsOf(claims.records)).to.deep.equal([first, last]);
      expect(claims.tooLarge).to.deep.equal({ marks: null, spare: 32 });
    });

    it('takes no job before its run_at', async () => {
      const { database } = store;
      await submit(database, 1, { runAtMs: Date.now() + 3_600_000 });
      expect(await claimJobs(database, anyJob, slots('w', 1), ttlMs)).to.deep.equal([]);
    });

    if (engine.name === 'postgresql') {
      it('gives every job to exactly one of many servers', async () => {
        const ids = await submit(store.database, 2_000);
        let headsMax = 0;
        const servers = await Promise.all(Array.from({ length: 4 }, () => openDatabase(store.options)));
        try {
          const drain = async (database: Database, workerId: string) => {
            const mine: string[] = [];
            for (;;) {
              const { records: claimed } = await claimWithCounts(
                {
                  query: (text, params, signal) => {
                    headsMax = Math.max(headsMax, params[6] as number);
                    return database.query(text, params, signal);
                  },
                },
                anyJob,
                slots(workerId, 7),
                rulesFor(ttlMs),
              );
              if (claimed.length === 0) return mine;
              mine.push(...idsOf(claimed));
            }
          };
          const workers = servers.flatMap((database, i) =>
            [0, 1, 2].map((n) => drain(database, `w${i}.${n}`)),
          );
          const claimed = (await Promise.all(workers)).flat();
          expect(claimed).to.have.length(ids.length);
          expect(new Set(claimed)).to.deep.equal(new Set(ids));
          // Eleven other claims lock at most 77 rows, so reading beyond the next 128 would be wasted.
          expect(headsMax).to.be.at.most(7 + 128);
        } finally {
          await Promise.all(servers.map((database) => database.close()));
        }
      });

      it('skips locked rows, even more of them than it reads ahead', async () => {
        const ids = await submit(store.database, 500);
        await store.database.transaction(async (sql) => {
          await sql.query('select from live_jobs where job_id = any ($1::uuid[]) for update', [
            ids.slice(0, 400),
          ]);
          const claimed = await claimJobs(store.database, anyJob, slots('w', 3), ttlMs);
          expect(idsOf(claimed)).to.deep.equal(ids.slice(400, 403));
        });
      });
    }
  });
});
