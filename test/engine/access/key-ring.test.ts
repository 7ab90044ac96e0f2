import { expect } from 'chai';
import { Authenticator } from '../../../src/engine/access/authenticator.ts';
import { KeyRing } from '../../../src/engine/access/key-ring.ts';
import { KeyService } from '../../../src/engine/access/key-service.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, silentLog } from '../../support/jobs.ts';
import { createKey } from '../../support/keys.ts';

describe('the key ring', () => {
  onEveryEngine((engine) => {
    let store: TestDatabase;
    let ring: KeyRing;
    let service: KeyService;
    let now: number;

    beforeEach(async () => {
      store = await engine.open();
      now = Date.now();
      ring = new KeyRing({ database: store.database, refreshMs: 1_000, log: silentLog, nowMs: () => now });
      service = new KeyService(store.database);
      await ring.load();
    });
    afterEach(() => store.close());

    const check = (text: string) => {
      const found = ring.check(text, '192.0.2.1');
      return typeof found === 'string' ? found : found.name;
    };

    it('knows a key after its next round, and refuses what only looks like one', async () => {
      const { text, keyId } = await createKey(store.database, { name: 'a', roles: ['worker'] });
      expect(check(text)).to.equal('unknown');
      await ring.runOnce();
      expect(check(text)).to.equal('a');
      expect(check(`${text}x`)).to.equal('malformed');
      const other = await createKey(store.database, { name: 'b', roles: ['worker'] });
      await ring.runOnce();
      expect(check(text)).to.equal('a');
      const forged = `lhk_${keyId}${other.text.slice(16)}`;
      expect(check(forged)).to.equal('malformed');
    });

    it('counts both secrets during the overlap of a rotation, and only the new one after it', async () => {
      const { text, keyId } = await createKey(store.database, { name: 'a', roles: ['worker'] });
      const fresh = await service.rotate(keyId, { overlap_s: 3_600 }, caller);
      await ring.runOnce();
      expect([check(text), check(fresh.text)]).to.deep.equal(['a', 'a']);
      now += 3_600_000 + 5_000;
      expect([check(text), check(fresh.text)]).to.deep.equal(['wrong secret', 'a']);
      const next = await service.rotate(keyId, { overlap_s: 0 }, caller);
      await ring.runOnce();
      expect([check(fresh.text), check(next.text)]).to.deep.equal(['wrong secret', 'a']);
    });

    it('ends the streams of the old secret with its overlap, and keeps those of the new one', async () => {
      const { text, keyId } = await createKey(store.database, { name: 'a', roles: ['worker'] });
      await ring.runOnce();
      const authenticator = new Authenticator({ keys: ring, tokens: undefined, log: silentLog });
      const ended: string[] = [];
      const follow = async (name: string, key: string) => {
        const authorization = `Bearer ${key}`;
        const principal = await authenticator.authenticate({ authorization, peer: '192.0.2.1' });
        authenticator.follow(principal, ({ code }) => ended.push(`${name}: ${code}`));
      };
      await follow('first', text);
      const second = await service.rotate(keyId, { overlap_s: 3_600 }, caller);
      await ring.runOnce();
      await follow('second', second.text);
      expect(ended).to.deep.equal([]);
      now += 3_605_000;
      await ring.runOnce();
      expect(ended).to.deep.equal(['first: unauthenticated']);
      const third = await service.rotate(keyId, { overlap_s: 0 }, caller);
      now += 10_000_000;
      await ring.runOnce();
      await follow('third', third.text);
      await ring.runOnce();
      expect(ended).to.deep.equal(['first: unauthenticated', 'second: unauthenticated']);
    });

    it('refuses a revoked key after its next round, and an expired one without a round', async () => {
      const revoked = await createKey(store.database, { name: 'a', roles: ['worker'] });
      const expiring = await createKey(store.database, {
        name: 'b',
        roles: ['worker'],
        expiresAtMs: now + 60_000,
      });
      await ring.runOnce();
      expect([check(revoked.text), check(expiring.text)]).to.deep.equal(['a', 'b']);
      let rounds = 0;
      ring.onRound(() => rounds++);
      await service.revoke(revoked.keyId, caller);
      await ring.runOnce();
      await ring.runOnce();
      expect(rounds).to.equal(2);
      expect(check(revoked.text)).to.equal('revoked');
      now += 60_001;
      expect(check(expiring.text)).to.equal('expired');
      expect(ring.size).to.equal(0);
    });

    it('records the last use of keys about once a minute', async () => {
      const { text, keyId } = await createKey(store.database, { name: 'a', roles: ['worker'] });
      await ring.runOnce();
      check(text);
      now += 61_000;
      await ring.runOnce();
      const { lastUsedAtMs, lastUsedFrom } = await service.get(keyId, caller);
      expect(lastUsedFrom).to.equal('192.0.2.1');
      expect(lastUsedAtMs).to.equal(now - 61_000);
    });

    it('lets one of two keys with one name be created, and frees the name by revoking', async () => {
      const attempts = await Promise.allSettled([
        createKey(store.database, { name: 'a', roles: ['worker'] }),
        createKey(store.database, { name: 'a', roles: ['worker'] }),
      ]);
      expect(attempts.map(({ status }) => status).sort()).to.deep.equal(['fulfilled', 'rejected']);
      const [key] = await service.list(caller);
      await service.revoke(key?.keyId ?? '', caller);
      await createKey(store.database, { name: 'a', roles: ['worker'] });
    });

    it('lets an administrator manage only keys that reach no further than its own', async () => {
      const scopes = { addon_ids: ['shop-*'], streams: ['*'], job_types: ['*'], repositories: [] };
      const principal = { ...caller.principal, kind: 'key' as const, scopes, workerIds: ['shop-*'] };
      const admin = { peer: 'x', principal };
      const wide = await createKey(store.database, { name: 'wide', roles: ['worker'] });
      const wish = (addon: string) => ({
        name: `k-${addon}`,
        roles: ['worker' as const],
        scopes: { addon_ids: [addon] },
        worker_ids: ['shop-1'],
      });
      await service.create(wish('shop-1'), admin);
      const refusals = await Promise.allSettled([
        service.create(wish('bank'), admin),
        service.create({ ...wish('shop-2'), worker_ids: ['*'] }, admin),
        service.revoke(wide.keyId, admin),
        service.rotate(wide.keyId, {}, admin),
        service.get(wide.keyId, admin),
      ]);
      expect(refusals.map((one) => one.status === 'rejected' && one.reason.code)).to.deep.equal([
        'permission_denied',
        'permission_denied',
        'not_found',
        'not_found',
        'not_found',
      ]);
      expect((await service.list(admin)).map(({ name }) => name)).to.deep.equal(['k-shop-1']);
    });

    it('writes each change of a key into the audit', async () => {
      const { keyId } = await createKey(store.database, { name: 'a', roles: ['worker'] });
      await service.rotate(keyId, {}, caller);
      await service.revoke(keyId, caller);
      const { items } = await service.audit({}, caller);
      expect(items.map(({ action, target }) => [action, target])).to.deep.equal([
        ['keys.revoke', keyId],
        ['keys.rotate', keyId],
        ['keys.create', keyId],
      ]);
    });
  });
});
