import { expect } from 'chai';
import { everything } from '../../../src/domain/access/scopes.ts';
import type { CreateKey } from '../../../src/domain/requests/access.ts';
import { KeyService } from '../../../src/engine/access/key-service.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller } from '../../support/jobs.ts';
import { createKey } from '../../support/keys.ts';

describe('the rules of keys', () => {
  onEveryEngine((engine) => {
    let store: TestDatabase;
    let service: KeyService;
    beforeEach(async () => {
      store = await engine.open();
      service = new KeyService(store.database);
    });
    afterEach(() => store.close());

    const shop = { ...everything, addon_ids: ['shop'] };
    const all = { addon_ids: ['*'], streams: ['*'], job_types: ['*'], repositories: ['*'] };
    const as = (principal: object) => ({
      peer: 'x',
      principal: { ...caller.principal, kind: 'key' as const, id: 'id', name: 'first', ...principal },
    });
    const admin = as({});
    const part = as({ scopes: shop });
    const wish = (more: Partial<CreateKey> = {}): CreateKey => ({
      name: 'k',
      roles: ['worker'],
      scopes: { addon_ids: ['shop'] },
      ...more,
    });
    const codeOf = (call: Promise<unknown>) =>
      call.then(
        () => 'ok',
        ({ code }: { code: string }) => code,
      );

    it('let no key outlive the key that creates it', async () => {
      const expiresAtMs = Date.now() + 3_600_000;
      const short = as({ expiresAtMs });
      for (const more of [{}, { never_expires: true }, { expires_in_days: 1 }]) {
        const { key } = await service.create(wish({ name: `k${Object.keys(more)[0]}`, ...more }), short);
        expect(key.expiresAtMs).to.equal(expiresAtMs);
      }
      const { key } = await service.create(wish({ never_expires: true }), admin);
      expect(key.expiresAtMs).to.equal(null);
    });

    it('keep a key without scopes from an administrator of a part', async () => {
      const { keyId } = await createKey(store.database, { name: 'bare', roles: ['worker'], scopes: {} });
      const calls = [service.get(keyId, part), service.rotate(keyId, {}, part), service.revoke(keyId, part)];
      const codes = await Promise.all(calls.map(codeOf));
      expect(codes).to.deep.equal(['not_found', 'not_found', 'not_found']);
      expect(await service.list(part)).to.deep.equal([]);
      expect(await codeOf(service.create(wish({ scopes: {} }), part))).to.equal('permission_denied');
      expect(await codeOf(service.get(keyId, admin))).to.equal('ok');
    });

    it('let a key act under its name and what is separated from it, by default', async () => {
      const workersOf = async (more: Partial<CreateKey>) =>
        (await service.create(wish(more), admin)).key.workerIds;
      expect(await workersOf({ name: 'gpu' })).to.deep.equal(['gpu', 'gpu-*', 'gpu/*']);
      expect(await workersOf({ name: 'ops', roles: ['admin'], scopes: all })).to.deep.equal(['*']);
      expect(await workersOf({ name: 'shop', roles: ['admin'] })).to.deep.equal(['shop', 'shop-*', 'shop/*']);
    });

    it('reserve the names of callers without a key', async () => {
      for (const name of ['local', 'server', 'System'])
        expect(await codeOf(service.create(wish({ name }), caller)), name).to.equal('invalid_request');
    });

    it('record in the audit what a new key may do', async () => {
      await service.create(
        wish({ roles: ['worker', 'observer'], worker_ids: ['a', 'b-*'], sees_payloads: true }),
        admin,
      );
      const { items } = await service.audit({}, caller);
      expect(items[0]?.detail).to.match(
        /^name=k roles=worker,observer addon_ids=shop worker_ids="a,b-\*" sees_payloads=true expires_at=\S+$/,
      );
    });
  });
});
