/** The guarantee: refused calls cost one event a second for each caller and reason, and all are counted. */
import { expect } from 'chai';
import type { AuditEvent } from '../../../src/domain/access/audit.ts';
import { anonymous, localPrincipal, type Principal } from '../../../src/domain/access/principal.ts';
import { DomainError } from '../../../src/domain/errors.ts';
import { denied } from '../../../src/engine/access/access-control.ts';
import { AuditQueue, refusalsMax } from '../../../src/engine/access/audit/audit-queue.ts';
import { UnauthenticatedError } from '../../../src/engine/access/audit/refusals.ts';
import { createLog } from '../../../src/lib/log.ts';
import { listAudit } from '../../../src/store/sql/access/audit.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { failure } from '../../support/failure.ts';

const principal: Principal = { ...localPrincipal, kind: 'key', id: 'k1', name: 'worker-key' };
const stranger = { principal: anonymous, peer: '192.0.2.7', method: 'GET /api/scheduler/jobs' };
const missing = () => new UnauthenticatedError('missing');

onEveryEngine((kind) => {
  describe('AuditQueue', () => {
    let store: TestDatabase;
    let queue: AuditQueue;
    let lines: string[];
    beforeEach(async () => {
      store = await kind.open();
      lines = [];
      const log = createLog({ level: 'warn', human: false, write: (line) => void lines.push(line) });
      queue = new AuditQueue({ database: store.database, log });
    });
    afterEach(async () => {
      await queue.stop();
      await store.close();
    });

    const events = async (): Promise<AuditEvent[]> => {
      const all = { cursor: null, sinceMs: null, untilMs: null, principalId: null, action: null };
      const found = await listAudit(store.database, { ...all, outcome: null, limit: 200 });
      return found.reverse();
    };

    it('writes one event for each caller and reason, with the number of the others', async () => {
      for (let i = 0; i < 1_000; i++) queue.note(stranger, missing());
      queue.note(stranger, new UnauthenticatedError('expired', 'keyId0123456'));
      queue.note({ ...stranger, peer: '192.0.2.8' }, missing());
      const call = { principal, peer: '192.0.2.7', method: 'a/B', traceId: 'ab'.repeat(16) };
      for (let i = 0; i < 3; i++) queue.note(call, denied('needs the permission jobs.retry'));
      queue.note(call, new Error('no refusal'));
      const limited = new DomainError('rate_limited', 'more than 10 calls a second');
      queue.note(call, limited);
      queue.note(stranger, limited);
      expect(await events()).to.deep.equal([]);
      await queue.runOnce();
      const [first, second, third, fourth, fifth, ...more] = await events();
      expect(more).to.deep.equal([]);
      expect(first).to.deep.include({
        action: 'access.unauthenticated',
        outcome: 'denied',
        principal: { kind: 'anonymous', id: '', name: '' },
        peer: '192.0.2.7',
        method: 'GET /api/scheduler/jobs',
        detail: 'missing',
        target: null,
        leftOut: 999,
      });
      expect(second).to.include({ detail: 'expired', target: 'keyId0123456', leftOut: 0 });
      expect(third).to.include({ peer: '192.0.2.8', leftOut: 0 });
      expect(fourth).to.deep.include({
        action: 'access.denied',
        principal: { kind: 'key', id: 'k1', name: 'worker-key' },
        method: 'a/B',
        detail: 'needs the permission jobs.retry',
        traceId: 'ab'.repeat(16),
        leftOut: 2,
      });
      expect(fifth).to.include({
        action: 'access.unauthenticated',
        detail: 'too many failed attempts',
      });
      await queue.runOnce();
      expect(await events()).to.have.length(5);
    });

    it('bounds its memory: further callers are counted together, by action', async () => {
      for (let i = 0; i < refusalsMax + 500; i++)
        queue.note({ ...stranger, peer: `10.0.${i >> 8}.${i & 255}` }, missing());
      queue.note({ principal, peer: 'a' }, denied('a reason'));
      await queue.runOnce();
      const found = await events();
      expect(found).to.have.length(refusalsMax + 2);
      const [strangers, known] = found.slice(refusalsMax);
      expect(strangers).to.include({ action: 'access.unauthenticated', peer: '', leftOut: 499 });
      expect(known).to.include({
        action: 'access.denied',
        detail: 'refusals of further callers',
        leftOut: 0,
      });
    });

    it('keeps and counts refusals while the database refuses them', async () => {
      const { database } = store;
      await database.query('alter table audit_events rename to lost', []);
      queue.note(stranger, missing());
      queue.noteAddress(principal, '192.0.2.7');
      for (let round = 0; round < 3; round++) {
        expect(await failure(queue.runOnce())).to.be.instanceOf(Error);
        queue.note(stranger, missing());
      }
      await database.query('alter table lost rename to audit_events', []);
      await queue.runOnce();
      const found = await events();
      expect(found.map(({ action, leftOut }) => [action, leftOut])).to.deep.equal([
        ['access.unauthenticated', 3],
        ['keys.new_address', 0],
      ]);
    });

    it('complains once for an outage of its writer, and writes what is left when it stops', async () => {
      const { database } = store;
      await database.query('alter table audit_events rename to lost', []);
      queue.note(stranger, missing());
      await queue.stop();
      await queue.stop();
      expect(lines).to.have.length(1);
      expect(lines[0]).to.include('refused calls could not be recorded');
      await database.query('alter table lost rename to audit_events', []);
      await queue.stop();
      expect(await events()).to.have.length(1);
    });

    it('records an address of a key once, whichever server reports it', async () => {
      const other = new AuditQueue({
        database: store.database,
        log: createLog({ level: 'silent', human: false }),
      });
      for (const each of [queue, other, queue]) {
        each.noteAddress(principal, '192.0.2.7');
        each.noteAddress(principal, '192.0.2.7');
        await each.runOnce();
      }
      queue.noteAddress(principal, '2001:db8::1');
      queue.noteAddress({ ...principal, id: 'k2' }, '192.0.2.7');
      await queue.runOnce();
      expect((await events()).map(({ target, peer }) => [target, peer])).to.deep.equal([
        ['k1', '192.0.2.7'],
        ['k1', '2001:db8::1'],
        ['k2', '192.0.2.7'],
      ]);
    });

    it('takes a bounded number of new addresses, and asks for the others again', () => {
      const taken = Array.from({ length: 500 }, (_, i) => queue.noteAddress(principal, `a-${i}`));
      expect(taken.filter(Boolean)).to.have.length(100);
      expect(queue.noteAddress(principal, 'a-0')).to.equal(true);
    });
  });
});
