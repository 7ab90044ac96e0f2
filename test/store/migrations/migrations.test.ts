/**
 * The guarantee: the SQL of a migration that has landed never changes. A new migration adds its line to
 * `checksums`.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Migration } from '@mikro-orm/migrations';
import { expect } from 'chai';
import { version } from '../../../src/lib/version.ts';
import { migrations } from '../../../src/store/migrations/index.ts';

/** Of the statements up and down, by the name of the migration. */
const checksums: Record<string, string> = {
  '0001-jobs': 'bb1c8eabb6052d1e',
  '0002-leases': '3e180d4b05dbdd61',
  '0003-streams': '1acff32a5c875fbf',
  '0004-files': '61ac3eb8d47e7603',
  '0005-stats': 'c089c913cfed2bb6',
  '0006-history': 'dd6ce365e01e9d81',
  '0007-lanes': '0654368f599f4dbf',
  '0008-lean-history': 'dae94d0371551f25',
  '0009-silences': '88463e96317010d1',
  '0010-submissions': '83fc080ef726a4a2',
  '0011-schema-compatibility': 'bbb483096146fad1',
  '0012-crowds': '56b990a4b7c845d5',
  '0013-files': '1e7f8377ac1a6e00',
  '0014-workers': '414d1851da19cdd4',
  '0015-capacity-changes': '173303f3a35569a8',
  '0017-failed-jobs': 'f4d2edcb8018b51f',
  '0018-message-names': 'cbff7f690f224968',
  '0019-lanes-of-crowds': 'b7716cfcadec53ca',
  '0020-access': '6bacd0233b5924e8',
  '0021-holders': '2301c77498fc83ef',
  '0022-audit': '62e04b5eaf4fb1df',
  '0023-quotas': 'c3ab1aea2be39c95',
  '0024-sessions': '522122fce5878067',
};

type Steps = Pick<Migration, 'up' | 'down' | 'getQueries' | 'reset'>;

async function checksumOf(migration: Steps): Promise<string> {
  await migration.up();
  const up = [...migration.getQueries()];
  migration.reset();
  await migration.down();
  const statements = [...up, 'down', ...migration.getQueries()].map(String);
  return createHash('sha256').update(statements.join('\n;\n')).digest('hex').slice(0, 16);
}

describe('migrations', () => {
  it('executes the SQL that each migration landed with', async () => {
    const found: Record<string, string> = {};
    for (const { name, class: Class } of migrations) {
      // Collects statements without a connection.
      found[name] = await checksumOf(Reflect.construct(Class, [{}, {}]) as Steps);
    }
    // Each checksum is set once, when the migration lands. A mismatch means that a landed migration was
    // edited.
    expect(found).to.deep.equal(checksums);
  });

  it("orders migrations by name, with writer versions up to the package's", async () => {
    const names = migrations.map(({ name }) => name);
    expect(names).to.deep.equal(names.toSorted());
    const manifest = JSON.parse(await readFile('package.json', 'utf8')) as { version: string };
    expect(version).to.equal(manifest.version);
    for (const { oldestWriter } of migrations) expect(oldestWriter).to.be.oneOf(['0.1.0', '0.2.0']);
  });
});
