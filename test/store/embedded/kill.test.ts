import { randomInt } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import {
  type Child,
  killed,
  nextLine,
  rowsOf,
  startFixture,
  temporaryDirectory,
  withDatabase,
} from '../../support/embedded-database.ts';

describe('a killed process with an embedded database', function () {
  this.timeout(30_000);
  const place = temporaryDirectory();
  const acknowledged: string[] = [];

  after(() => place.remove());

  /** Lines that the child wrote before its death may still be in the pipe, and count. */
  async function killAndHearOut(child: Child): Promise<void> {
    await killed(child);
    for await (const line of child.lines) {
      if (line !== 'ready') acknowledged.push(line);
    }
  }

  // The moments cover the lock, the unpacking, PostgreSQL's first start and the first tables.
  it('opens a directory whose process was killed at any moment of its first start', async () => {
    const moments = [0, 150, 300, 450, 600].map((ms) => ms + randomInt(150));
    for (const moment of moments) {
      const child = startFixture('insert-until-killed', place.dir);
      await setTimeout(moment);
      await killAndHearOut(child);
    }
    await withDatabase(place.dir, async (kysely) => {
      expect(await rowsOf(kysely, 'select 1 as one'), `killed after ${moments} ms`).to.deep.equal([
        { one: 1 },
      ]);
    });
  });

  it('loses no acknowledged write when the process is killed at any moment', async () => {
    const counts = Array.from({ length: 4 }, () => randomInt(1, 300));
    for (const count of counts) {
      const child = startFixture('insert-until-killed', place.dir);
      expect(await nextLine(child)).to.equal('ready');
      for (let n = 0; n < count; n += 1) acknowledged.push(await nextLine(child));
      await killAndHearOut(child);
    }
    await withDatabase(place.dir, async (kysely) => {
      const kept = new Set((await rowsOf(kysely, 'select id from written')).map(({ id }) => id));
      const lost = acknowledged.filter((id) => !kept.has(id));
      expect(lost, `killed after ${counts} acknowledged writes`).to.deep.equal([]);
      expect(acknowledged.length).to.be.at.least(counts.reduce((sum, count) => sum + count));
    });
  });
});
