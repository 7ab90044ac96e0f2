/** Sessions of browsers end with their credential, by time, and by a logout, on every server. */
import { expect } from 'chai';
import type { Principal } from '../../../src/domain/access/principal.ts';
import type { DomainError } from '../../../src/domain/errors.ts';
import { KeyRing } from '../../../src/engine/access/key-ring.ts';
import { KeyService } from '../../../src/engine/access/key-service.ts';
import { Sessions, sessionsOfOneMax } from '../../../src/engine/access/sessions.ts';
import { listAudit } from '../../../src/store/sql/access/audit.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, silentLog } from '../../support/jobs.ts';
import { createKey, type TestKey } from '../../support/keys.ts';

const hour = 3_600_000;
const ttlMs = 12 * hour;

/** The sessions of one server, with its keys. */
class ServerSessions {
  readonly ring: KeyRing;
  readonly sessions: Sessions;

  constructor({ database }: TestDatabase, nowMs: () => number) {
    this.ring = new KeyRing({ database, refreshMs: 1_000, log: silentLog, nowMs });
    this.sessions = new Sessions({
      database,
      keys: this.ring,
      ttlMs,
      refreshMs: 1_000,
      log: silentLog,
      nowMs,
    });
  }

  async runOnce(): Promise<void> {
    await this.ring.runOnce();
    await this.sessions.runOnce();
  }

  async find(id: string): Promise<string> {
    const found = await this.sessions.find(id);
    return typeof found === 'string' ? found : found.name;
  }

  async principalOf(id: string): Promise<Principal> {
    const found = await this.sessions.find(id);
    if (typeof found === 'string') throw new Error(found);
    return found;
  }
}

describe('sessions', () => {
  onEveryEngine((engine) => {
    let store: TestDatabase;
    let now: number;
    let one: ServerSessions;
    let two: ServerSessions;
    let key: TestKey;

    beforeEach(async () => {
      store = await engine.open();
      now = Date.now();
      [one, two] = [new ServerSessions(store, () => now), new ServerSessions(store, () => now)];
      key = await createKey(store.database, { name: 'ann', roles: ['observer'], workerIds: ['ann*'] });
      await one.runOnce();
      await two.runOnce();
    });
    afterEach(() => store.close());

    const login = (text = key.text, previous?: string) =>
      one.sessions.loginWithKey(text, { ...caller, peer: '192.0.2.1' }, previous);
    const acts = async () =>
      (
        await listAudit(store.database, {
          cursor: null,
          untilMs: null,
          outcome: null,
          sinceMs: null,
          principalId: null,
          action: null,
          limit: 100,
        })
      )
        .filter(({ action }) => action.startsWith('session.'))
        .map(({ action, outcome, principal }) => `${action} ${outcome} ${principal.name}`);
    const rows = async (): Promise<Record<string, unknown>[]> =>
      store.database.query('select * from sessions', []);

    it('give the rights of their key on every server, under the kind session', async () => {
      const { id, principal } = await login();
      expect(principal).to.include({ kind: 'session', id: key.keyId, name: 'ann' });
      expect(principal.roles).to.deep.equal(['observer']);
      expect(principal.workerIds).to.deep.equal(['ann*']);
      expect(principal.expiresAtMs).to.equal(now + ttlMs);
      expect([await one.find(id), await two.find(id)]).to.deep.equal(['ann', 'ann']);
      expect(await one.principalOf(id)).to.equal(principal);
    });

    it('have a new id at each login, of which the database has only a hash', async () => {
      const [a, b] = [await login(), await login()];
      expect(a.id)
        .to.match(/^[\w-]{43}$/)
        .and.not.to.equal(b.id);
      const text = JSON.stringify(await rows());
      expect(text).to.include(a.session.hash);
      for (const secret of [a.id, b.id, key.text]) expect(text).not.to.include(secret);
      expect(await one.find(a.session.hash)).to.equal('unknown session');
      expect(await one.find('x'.repeat(43))).to.equal('unknown session');
    });

    it('end the session that the browser had before a login', async () => {
      const before = await login();
      const after = await login(key.text, before.id);
      expect(await one.find(before.id)).to.equal('unknown session');
      expect(await one.find(after.id)).to.equal('ann');
    });

    it('end on every server with their key, when it is revoked', async () => {
      const { id } = await login();
      const principal = await two.principalOf(id);
      expect(two.sessions.isInForce(principal)).to.equal(true);
      await new KeyService(store.database).revoke(key.keyId, caller);
      await one.runOnce();
      await two.runOnce();
      expect([await one.find(id), await two.find(id)]).to.deep.equal([
        'ended credential',
        'ended credential',
      ]);
      expect(two.sessions.isInForce(principal)).to.equal(false);
    });

    it('end with their key, when it expires', async () => {
      const short = await createKey(store.database, {
        name: 'short',
        roles: ['observer'],
        expiresAtMs: now + 60_000,
      });
      await one.runOnce();
      const { id, principal } = await login(short.text);
      expect(principal.expiresAtMs).to.equal(now + 60_000);
      now += 60_001;
      expect(await one.find(id)).to.equal('ended credential');
      expect(one.sessions.isInForce(principal)).to.equal(false);
    });

    it('end after their time, although they are in use', async () => {
      const { id } = await login();
      for (let at = 0; at < 23; at++) {
        now += hour / 2;
        await one.runOnce();
        expect(await one.find(id)).to.equal('ann');
      }
      now += hour / 2;
      expect(await one.find(id)).to.equal('expired session');
    });

    it('end after an hour without use, counted over all servers', async () => {
      const { id } = await login();
      now += hour - 1_000;
      expect(await two.find(id)).to.equal('ann');
      await two.runOnce();
      await one.runOnce();
      now += hour - 1_000;
      expect(await one.find(id)).to.equal('ann');
      await one.runOnce();
      now += hour;
      expect([await one.find(id), await two.find(id)]).to.deep.equal(['idle session', 'idle session']);
    });

    it('end everywhere by a logout, and tell the streams that follow them', async () => {
      const { id, principal } = await login();
      const followed = await two.principalOf(id);
      let told = 0;
      two.sessions.onRound(() => told++);
      expect(await one.sessions.logout({ ...caller, principal })).to.equal(true);
      expect(await one.find(id)).to.equal('unknown session');
      await two.runOnce();
      expect(told).to.equal(1);
      expect(two.sessions.isInForce(followed)).to.equal(false);
      expect(await two.find(id)).to.equal('unknown session');
      expect(await one.sessions.logout({ ...caller, principal })).to.equal(false);
    });

    it('are forgotten when nothing needs them, and kept for a stream that follows them', async () => {
      const [followed, unused] = [await login(), await login()];
      for (let at = 0; at < 4; at++) {
        now += 30_000;
        await one.runOnce();
        expect(one.sessions.isInForce(followed.principal)).to.equal(true);
      }
      expect(one.sessions.size).to.equal(1);
      expect(await one.find(unused.id)).to.equal('ann');
    });

    it('are at most a hundred for one key, and the oldest ends first', async () => {
      const first = await login();
      for (let at = 0; at < sessionsOfOneMax; at++) {
        now += 1;
        await login();
      }
      expect(await rows()).to.have.length(sessionsOfOneMax);
      await one.runOnce();
      expect(await one.find(first.id)).to.equal('unknown session');
    });

    it('leave no rows behind when they have ended', async () => {
      await login();
      now += ttlMs;
      await one.runOnce();
      expect(await rows()).to.deep.equal([]);
    });

    it('are in the audit with refused logins, of which an address has a limited number', async () => {
      const { principal } = await login();
      await one.sessions.logout({ ...caller, principal });
      const wrong = () => login('lhk_wrong').catch((error: DomainError) => error.code);
      for (let at = 0; at < 10; at++) expect(await wrong()).to.equal('unauthenticated');
      expect(await wrong()).to.equal('rate_limited');
      // Attempts in one second are one entry.
      expect(await acts()).to.deep.equal([
        'session.login denied ',
        'session.logout done ann',
        'session.login done ann',
      ]);
      await login();
      now += 60_000;
      expect(await wrong()).to.equal('unauthenticated');
      expect((await acts()).slice(0, 2)).to.deep.equal(['session.login denied ', 'session.login done ann']);
    });
  });
});
