import { expect } from 'chai';
import { everything } from '../../../src/domain/access/scopes.ts';
import { KeyService } from '../../../src/engine/access/key-service.ts';
import { ApiKey } from '../../../src/store/schema/access-entities.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller } from '../../support/jobs.ts';

const dayMs = 86_400_000;
const part = { ...everything, addon_ids: ['shop'] };

describe('the limits of keys', () => {
  onEveryEngine((engine) => {
    let store: TestDatabase;
    let service: KeyService;

    beforeEach(async () => {
      store = await engine.open();
      service = new KeyService(store.database);
    });
    afterEach(() => store.close());

    interface Wish {
      name: string;
      createdBy?: string;
      revokedDaysAgo?: number;
      expiredDaysAgo?: number;
    }

    async function insert(wishes: readonly Wish[]): Promise<void> {
      const ago = (days: number | undefined) =>
        days === undefined ? null : new Date(Date.now() - days * dayMs);
      const rows = wishes.map(({ name, createdBy = 'first', revokedDaysAgo, expiredDaysAgo }) => ({
        key_id: name,
        lineage: crypto.randomUUID(),
        name,
        roles: ['worker'],
        scopes: { ...(name === 'first' ? everything : part) } as unknown as Record<string, string[]>,
        worker_ids: ['*'],
        sees_payloads: false,
        secret_hash: '00',
        created_at: new Date(),
        created_by: createdBy,
        revoked_at: ago(revokedDaysAgo),
        expires_at: ago(expiredDaysAgo),
      }));
      for (let from = 0; from < rows.length; from += 1_000)
        await store.database.em().insertMany(ApiKey, rows.slice(from, from + 1_000));
    }

    const many = (count: number, wish: (n: number) => Wish) =>
      insert(Array.from({ length: count }, (_, n) => wish(n)));
    const as = (name: string) => ({
      peer: 'x',
      principal: { ...caller.principal, kind: 'key' as const, id: name, name },
    });
    const create = (name: string, by = as('other')) =>
      service.create({ name, roles: ['worker'], scopes: { addon_ids: ['shop'] } }, by).then(
        () => 'created',
        ({ code }: { code: string }) => code,
      );
    const names = async () => (await service.list(caller)).map(({ name }) => name);

    it('counts keys in force alone, and lets the owner of the database create one at the limit', async () => {
      await many(10_000, (n) => ({ name: `gone-${n}`, createdBy: `c-${n % 20}`, revokedDaysAgo: 1 }));
      expect(await create('a')).to.equal('created');
      await many(9_999, (n) => ({ name: `key-${n}`, createdBy: `c-${n % 20}` }));
      expect(await create('b')).to.equal('quota_exceeded');
      expect(await create('b', caller as never)).to.equal('created');
    });

    it('limits the keys in force that a key has created, also through keys that it created', async () => {
      await insert([
        { name: 'first', createdBy: 'ann' },
        { name: 'part' },
        { name: 'child', createdBy: 'part', revokedDaysAgo: 1 },
        { name: 'grandchild', createdBy: 'child' },
      ]);
      await many(998, (n) => ({ name: `key-${n}`, createdBy: n % 2 ? 'part' : 'grandchild' }));
      expect(await create('a', as('grandchild'))).to.equal('created');
      expect(await create('b', as('grandchild'))).to.equal('quota_exceeded');
      expect(await create('b', as('part'))).to.equal('quota_exceeded');
      expect(await create('b', as('first'))).to.equal('created');
      expect(await create('c')).to.equal('created');
    });

    it('deletes keys that were revoked or have expired more than 30 days ago', async () => {
      await insert([
        { name: 'revoked long ago', revokedDaysAgo: 31 },
        { name: 'expired long ago', expiredDaysAgo: 31 },
        { name: 'revoked', revokedDaysAgo: 29 },
        { name: 'expired', expiredDaysAgo: 29 },
        { name: 'in force' },
      ]);
      expect(await create('new')).to.equal('created');
      expect((await names()).sort()).to.deep.equal(['expired', 'in force', 'new', 'revoked']);
    });

    it('keeps 1,000 revoked and expired keys at most', async () => {
      await many(1_005, (n) => ({ name: `gone-${n}`, revokedDaysAgo: 1 }));
      await insert([{ name: 'in force' }]);
      expect(await create('new')).to.equal('created');
      const left = await names();
      expect(left).to.have.length(1_002);
      expect(left).to.include.members(['in force', 'new']);
    });
  });
});
