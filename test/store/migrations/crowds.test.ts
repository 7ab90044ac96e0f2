/** The guarantee: jobs in crowded lanes are found in the same order after the migration. */
import { expect } from 'chai';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { lockCandidates } from '../../../src/store/sql/queue/candidates.ts';
import { ownLanesMax } from '../../../src/store/sql/queue/crowds.ts';
import { firstWindow, noMarks } from '../../../src/store/sql/queue/heads.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { anyJob, caller, engineOn, submitted } from '../../support/jobs.ts';

describe('the migration to crowds (A5)', () => {
  onEveryEngine((kind) => {
    it('finds jobs by the keys that a submission would compute', async () => {
      const store = await kind.create({ empty: true });
      const database = await openDatabase(store.options);
      try {
        await migrate(database);
        const engine = engineOn(database);
        const needs = [[], ['b'], ['a', 'ü'], Array.from('abcdefghij')];
        const commands = Array.from({ length: 2 * ownLanesMax }, (_, i) => ({
          job_type: `t ${i}\n"`,
          addon_id: `a${i % 3}`,
          unique: i % 5 === 0,
          constraints: Object.fromEntries(
            (needs[i % 4] as string[]).map((name) => [`${name}_required`, true]),
          ),
          ...(i % 8 < 4 ? { stream: 's' } : {}),
        }));
        const jobs = await submitted(engine, ...commands, ...commands);
        const available = Array.from('abcdefghijü');
        const found = async () => {
          const filters = [
            anyJob,
            { ...anyJob, available },
            { ...anyJob, available: ['a'], streams: ['s'] },
            { ...anyJob, available, streams: ['s'] },
            { ...anyJob, available, addonId: 'a1' },
            { ...anyJob, available, jobTypes: jobs.slice(0, 90).map(({ jobType }) => jobType) },
            { ...anyJob, available, addonId: 'a2', jobTypes: jobs.map(({ jobType }) => jobType) },
          ];
          const ids: string[][] = [];
          for (const filter of filters) {
            const wanted = { count: 500, unique: true, window: firstWindow(noMarks) };
            const { candidates } = await database.transaction((sql) => lockCandidates(sql, filter, wanted));
            ids.push(candidates.map(({ jobId }) => jobId));
          }
          return ids;
        };
        const keys = () =>
          database.query(
            `select lane_key, crowd, crowd_type, crowd_addon, crowd_both from lanes where crowd is not null`,
            [],
          );
        const [foundBefore, keysBefore] = [await found(), await keys()];
        expect(foundBefore.map(({ length }) => length).filter((length) => length === 0)).to.deep.equal([]);
        await engine.stop();
        await database.orm.migrator.down({ to: '0011-schema-compatibility' });
        await migrate(database);
        expect(await keys()).to.have.length.above(0);
        expect(await found()).to.deep.equal(foundBefore);
        // The same lanes have the same keys, whether the migration or a submission computed them.
        const known = new Map(keysBefore.map((row) => [(row as { lane_key: string }).lane_key, row]));
        for (const row of (await keys()) as { lane_key: string }[])
          if (known.has(row.lane_key)) expect(row).to.deep.equal(known.get(row.lane_key));
        const after = engineOn(database);
        await submitted(after, { job_type: 't 99\n"' });
        expect((await after.jobs.list({}, caller)).items[0]?.jobType).to.equal('t 99\n"');
        await after.stop();
      } finally {
        await database.close();
        await store.remove();
      }
    });
  });
});
