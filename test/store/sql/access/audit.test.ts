/** The guarantee: the audit is append-only, and only what is older than its retention is deleted. */
import { expect } from 'chai';
import type { AuditDraft } from '../../../../src/domain/access/audit.ts';
import { anonymous, localPrincipal } from '../../../../src/domain/access/principal.ts';
import { type AuditFilter, listAudit, recordAudit } from '../../../../src/store/sql/access/audit.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { failure } from '../../../support/failure.ts';
import { engineOn, engineSettings } from '../../../support/jobs.ts';

const dayMs = 86_400_000;

const all: AuditFilter = {
  cursor: null,
  sinceMs: null,
  untilMs: null,
  principalId: null,
  action: null,
  outcome: null,
  limit: 200,
};

const event: AuditDraft = {
  principal: localPrincipal,
  requestedBy: 'ann',
  peer: '192.0.2.1',
  method: 'PUT /api/scheduler/stats/capacity',
  action: 'capacity.set',
  target: 'capacity',
  outcome: 'done',
  detail: 'total=1->2',
  traceId: null,
  leftOut: 0,
};

onEveryEngine((kind) => {
  describe('the audit', () => {
    let store: TestDatabase;
    beforeEach(async () => {
      store = await kind.open();
    });
    afterEach(() => store.close());

    const targets = async (filter: Partial<AuditFilter> = {}) =>
      (await listAudit(store.database, { ...all, ...filter })).map(({ target }) => target);

    it('refuses to change, delete and truncate events, also with the setting of the pruner', async () => {
      const { database } = store;
      await recordAudit(database, event, { ...event, target: 'old', agoMs: 400 * dayMs });
      for (const statement of [
        "update audit_events set outcome = 'denied'",
        'update audit_events set at = at where audit_id = 0',
        'delete from audit_events',
        "delete from audit_events where target = 'old'",
        'truncate audit_events',
      ]) {
        const error = await failure(database.query(statement, []));
        expect(String(error), statement).to.include('audit_events is append-only');
      }
      const error = await failure(
        database.transaction(async (sql) => {
          await sql.query("set local leasehold.prunes_audit = 'on'", []);
          await sql.query("delete from audit_events where target = 'capacity'", []);
        }),
      );
      expect(String(error)).to.include('append-only: delete is refused');
      const [newest] = await listAudit(database, all);
      expect(newest).to.include({ target: 'old', leftOut: 0 });
      expect(await targets()).to.deep.equal(['old', 'capacity']);
    });

    it('deletes what is older than its retention, in slices, and keeps the rest', async () => {
      const { database } = store;
      const old = Array.from({ length: 1_200 }, (_, i) => ({
        ...event,
        target: 'old',
        agoMs: 366 * dayMs + i * 1_000,
      }));
      await recordAudit(database, ...old, { ...event, target: 'young', agoMs: 364 * dayMs }, event);
      const engine = engineOn(database);
      try {
        expect(await engine.services.pruner.runOnce()).to.equal(1_200);
        expect(await targets()).to.deep.equal(['capacity', 'young']);
      } finally {
        await engine.stop();
      }
    });

    it('keeps everything if the retention is 0', async () => {
      const { database } = store;
      await recordAudit(database, { ...event, agoMs: 9_000 * dayMs });
      const engine = engineOn(database, { ...engineSettings, retentionAuditDays: 0 });
      try {
        await engine.services.pruner.runOnce();
        expect(await targets()).to.have.length(1);
      } finally {
        await engine.stop();
      }
    });

    it('lists by time, principal, action and outcome, in pages', async () => {
      const { database } = store;
      const ago = (days: number) => Date.now() - days * dayMs;
      await recordAudit(
        database,
        { ...event, target: 'a', agoMs: 9 * dayMs },
        { ...event, target: 'b', agoMs: 5 * dayMs, principal: { kind: 'key', id: 'k', name: 'n' } },
        {
          ...event,
          target: 'c',
          agoMs: dayMs,
          principal: anonymous,
          action: 'access.denied',
          outcome: 'denied',
        },
      );
      expect(await targets()).to.deep.equal(['c', 'b', 'a']);
      expect(await targets({ sinceMs: ago(6) })).to.deep.equal(['c', 'b']);
      expect(await targets({ untilMs: ago(4) })).to.deep.equal(['b', 'a']);
      expect(await targets({ sinceMs: ago(6), untilMs: ago(4) })).to.deep.equal(['b']);
      expect(await targets({ principalId: 'k' })).to.deep.equal(['b']);
      expect(await targets({ action: 'access.denied' })).to.deep.equal(['c']);
      expect(await targets({ outcome: 'done' })).to.deep.equal(['b', 'a']);
      const [newest] = await listAudit(database, { ...all, limit: 1 });
      expect(newest?.principal).to.deep.equal({ kind: 'anonymous', id: '', name: '' });
      expect(await targets({ cursor: newest?.auditId ?? null })).to.deep.equal(['b', 'a']);
    });
  });
});
