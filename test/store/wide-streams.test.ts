/** Streams that have many lanes, because many submit to them. */
import { expect } from 'chai';
import type { Database } from '../../src/store/database.ts';
import type { Sql } from '../../src/store/sql.ts';
import { anyCandidate, lockCandidates } from '../../src/store/statements/candidates.ts';
import { type ClaimFilter, noPlaces } from '../../src/store/statements/heads.ts';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';
import { anyJob } from '../support/jobs.ts';
import { rowsTouched } from '../support/rows-touched.ts';

const filterFor = (...streams: string[]): ClaimFilter => ({ ...anyJob, streams });

/** Lanes of a stream, each of a submitter of its own. */
const addLanes = (database: Database, stream: string, lanes: number) =>
  database.query(
    `insert into lanes (lane_key, stream, addon_id, job_type, requires, heavy, is_unique)
    select $1 || n || random(), $1, 'a' || n, 't', '{}', '{}', false from generate_series(1, $2::int) as n`,
    [stream, lanes],
  );

/** Queues a few jobs in each of so many lanes of a stream, spread over all of its lanes; they are older the later the lane. */
const fill = (database: Database, stream: string, lanes: number) =>
  database.query(
    `insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, attempts, attempts_limit, claims_lost,
      cancel_requested, updated_at)
    select gen_random_uuid(), lane_id, 1000000 - 3 * lane_id + n, 2, 1, 4, 0, 0, 1, 0, false, now()
    from (select lane_id from lanes where stream = $1 order by md5(lane_id::text) limit $2::int) some_of_them,
      generate_series(0, 2) as n`,
    [stream, lanes],
  );

describe('a stream of many lanes', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    beforeEach(async () => {
      store = await kind.open();
      // Others come before, between and after its own.
      for (const [stream, lanes] of [
        ['before', 300],
        ['wide', 1_000],
        ['between', 300],
        ['wide', 1_000],
        ['after', 300],
      ] as const)
        await addLanes(store.database, stream, lanes);
      await fill(store.database, 'before', 10);
      await fill(store.database, 'between', 200);
      await fill(store.database, 'after', 10);
    });
    afterEach(() => store.close());

    /** Rows of lanes and of jobs. */
    const touchedBy = (work: (sql: Sql) => Promise<unknown>) =>
      rowsTouched(store.database, work, ['lanes', 'live_jobs']);

    it('is looked into once, and then only where it has something', async () => {
      await fill(store.database, 'wide', 4);
      const wide = filterFor('wide');
      for (const when of ['without statistics', 'with statistics']) {
        // The first look finds out, be it for a worker that waits or for one that takes.
        expect(await anyCandidate(store.database, wide, noPlaces)).to.equal(true);
        const look = await touchedBy((sql) => anyCandidate(sql, wide, noPlaces));
        expect(look, `rows for a look ${when}`).to.be.below(1_000);
        const take = await touchedBy((sql) =>
          lockCandidates(sql, wide, { count: 5, unique: true, places: noPlaces }),
        );
        expect(take, `rows for five ${when}`).to.be.below(1_000);
        await store.database.query('analyze', []);
      }
    });

    for (const lanes of [0, 1, 3, 49, 50, 51, 700, 2_000]) {
      it(`gives the same as any other where ${lanes} of its lanes have something`, async () => {
        await fill(store.database, 'wide', lanes);
        await anyCandidate(store.database, filterFor('wide'), noPlaces);
        // Named twice it is looked into by name.
        for (const wanted of [1, 20, 200]) {
          const take = (filter: ClaimFilter) =>
            store.database.transaction((sql) =>
              lockCandidates(sql, filter, { count: wanted, unique: true, places: noPlaces }),
            );
          const taken = await take(filterFor('wide'));
          expect(taken).to.have.length(Math.min(wanted, 3 * lanes));
          expect(taken).to.deep.equal(await take(filterFor('wide', 'wide')));
        }
        expect(await anyCandidate(store.database, filterFor('wide'), noPlaces)).to.equal(lanes > 0);
      });
    }

    it('does not keep workers of other streams, or of none, from what is theirs', async () => {
      await anyCandidate(store.database, filterFor('wide'), noPlaces);
      expect(await anyCandidate(store.database, filterFor('wide'), noPlaces)).to.equal(false);
      expect(await anyCandidate(store.database, filterFor('after'), noPlaces)).to.equal(true);
      expect(await anyCandidate(store.database, filterFor('wide', 'between'), noPlaces)).to.equal(true);
      expect(await anyCandidate(store.database, { ...filterFor(), streams: null }, noPlaces)).to.equal(false);
    });
  });
});
