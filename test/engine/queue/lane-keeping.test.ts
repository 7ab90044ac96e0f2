/**
 * The guarantee: the sweep of idle lanes refuses no submission, however often it removes its lanes meanwhile.
 */
import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { LaneSweeper } from '../../../src/engine/queue/lane-sweeper.ts';
import type { Database } from '../../../src/store/database.ts';
import { keepLanes, type Lane, laneText, makeLanes } from '../../../src/store/sql/queue/lanes.ts';
import { sweepLanes } from '../../../src/store/sql/queue/sweep-lanes.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, silentLog, submitted, submittedIds } from '../../support/jobs.ts';
import { acquired, freshForEach, Holder, releaseFor } from '../../support/lease-helpers.ts';

/**
 * Removes every idle lane before each matching statement that is its own transaction.
 * `stop` returns the number removed.
 */
function sweepBefore(database: Database, sweeper: LaneSweeper, suits: (text: string) => boolean) {
  const query = database.query;
  let isSweeping = false;
  let removed = 0;
  database.query = async (text, params, signal) => {
    if (!isSweeping && suits(text)) {
      isSweeping = true;
      removed += await sweeper.runOnce();
      isSweeping = false;
    }
    return query.call(database, text, params, signal) as Promise<never>;
  };
  return {
    stop: (): number => {
      database.query = query;
      return removed;
    },
  };
}

onEveryEngine((kind) => {
  describe('a submission whose lanes are removed (A5)', () => {
    const stage = freshForEach(kind);
    let sweeper: LaneSweeper;
    beforeEach(async () => {
      const { database } = stage.store;
      await database.query('delete from lanes', []);
      sweeper = new LaneSweeper({ database, log: silentLog, keptMax: 0 });
    });

    /** Creates lanes that the server remembers and that have no unfinished job. */
    const idleLanes = async (...types: string[]): Promise<void> => {
      for (const job_type of types) {
        await submitted(stage.engine, { job_type });
        await stage.engine.leases.release(releaseFor(await acquired(stage.engine)), caller);
      }
      await stage.engine.services.statsAggregator.runOnce();
    };
    const draftsOf = (...types: string[]) =>
      types.map((job_type) =>
        draft({ addon_id: 'a', job_type, cost_units: 1 }, false, stage.engine.settings),
      );
    const claimedIds = async (): Promise<string[]> => {
      const jobs = await stage.engine.jobs.claim({ worker_id: 'w', limit: 100 }, caller);
      return jobs.map(({ jobId }) => jobId);
    };

    for (const [moment, suits] of [
      ['each of its statements', () => true],
      ['each write of its jobs', (text: string) => text.includes('insert into jobs')],
    ] as const) {
      it(`creates a submission's lanes again when they are removed before ${moment}`, async () => {
        await idleLanes('one', 'two');
        const sweeping = sweepBefore(stage.store.database, sweeper, suits);
        const jobIds = await submittedIds(stage.engine, draftsOf('one', 'two', 'new')).finally(sweeping.stop);
        expect(sweeping.stop(), 'two that were remembered, and one that was just made').to.equal(3);
        expect(await claimedIds()).to.deep.equal(jobIds);
      });
    }

    it('remembers new lanes, so that the next submission is a single statement', async () => {
      await idleLanes('one', 'two');
      expect(await sweeper.runOnce()).to.equal(2);
      await submittedIds(stage.engine, draftsOf('one', 'two'));
      const { database } = stage.store;
      const { query, transaction } = database;
      let statements = 0;
      let transactions = 0;
      database.query = (...args) => {
        statements++;
        return query.apply(database, args) as Promise<never>;
      };
      database.transaction = (...args) => {
        transactions++;
        return transaction.apply(database, args) as Promise<never>;
      };
      await submittedIds(stage.engine, draftsOf('one', 'two')).finally(() => {
        Object.assign(database, { query, transaction });
      });
      expect({ statements, transactions }).to.deep.equal({ statements: 1, transactions: 0 });
    });

    if (kind.name !== 'postgresql') return;

    it('keeps new lanes from the sweep until their jobs are committed', async () => {
      const { database } = stage.store;
      await idleLanes('one');
      expect(await sweeper.runOnce()).to.equal(1);
      await database.query(
        `create function await_holder() returns trigger language plpgsql as
          $$ begin perform pg_advisory_xact_lock_shared(1); return new; end $$`,
        [],
      );
      await database.query(
        'create trigger await_holder before insert on jobs for each row execute function await_holder()',
        [],
      );
      const holder = await Holder.hold(stage.store, 'select pg_advisory_xact_lock(1)');
      const submission = submittedIds(stage.engine, draftsOf('one', 'new'));
      await holder.untilWaiting(1);
      for (let sweeps = 0; sweeps < 3; sweeps++) expect(await sweeper.runOnce()).to.equal(0);
      await holder.letGo();
      const jobIds = await submission;
      expect(await claimedIds()).to.deep.equal(jobIds);
      await database.query('drop function await_holder cascade', []);
    });

    /** Keeps a lane, and runs `beside` right before the first statement that contains `part`. */
    const keptBeside = async (lane: Lane, part: string, beside: () => Promise<unknown>) =>
      stage.store.database.transaction(async (sql) => {
        let times = 0;
        const kept = await keepLanes(
          {
            query: async (text, params) => {
              if (text.includes(part) && times++ === 0) await beside();
              return sql.query(text, params);
            },
          },
          new Map([[laneText(lane), lane]]),
        );
        expect(times, 'the statement was sent').to.equal(1);
        expect(await sweeper.runOnce(), 'removed before the end').to.equal(0);
        return kept.get(laneText(lane));
      });
    const lane: Lane = {
      stream: null,
      addonId: 'a',
      jobType: 'one',
      requires: [],
      heavy: [],
      unique: false,
    };
    const make = () => makeLanes(stage.store.database, new Map([[laneText(lane), lane]]));
    const rows = () =>
      stage.store.database.query<{ laneId: number }>('select lane_id as "laneId" from lanes', []);

    it('keeps an existing lane', async () => {
      const place = await keptBeside(lane, 'order by lane_key', make);
      expect(await rows()).to.deep.equal([{ laneId: place?.laneId }]);
    });

    it('keeps a lane that another server creates just before', async () => {
      const place = await keptBeside(lane, 'insert into lanes', make);
      expect(await rows()).to.deep.equal([{ laneId: place?.laneId }]);
    });

    it('creates a lane anew while a sweep removes the one of another server', async () => {
      const goOn = Promise.withResolvers<void>();
      let sweep: Promise<{ removed: number } | undefined> | undefined;
      let letting: Promise<void> | undefined;
      const place = await keptBeside(lane, 'insert into lanes', async () => {
        await make();
        const entered = Promise.withResolvers<void>();
        sweep = stage.store.database.transaction(async (sql) => {
          await sql.query(`update prune_walks set rests_until = '-infinity' where walk = 'lanes'`, []);
          const slice = await sweepLanes(sql, 0);
          entered.resolve();
          await goOn.promise;
          return slice;
        });
        await entered.promise;
        // The sweep commits once the statement waits for its lock.
        const holder = await Holder.hold(stage.store, 'select 1');
        letting = holder
          .untilWaiting(1)
          .then(() => holder.close())
          .finally(goOn.resolve);
      });
      await letting;
      expect((await sweep)?.removed).to.equal(1);
      expect(await rows()).to.deep.equal([{ laneId: place?.laneId }]);
    });
  });
});
