/**
 * The guarantee: sweeps examine every waiting kind in turn, however many there are, and none exceeds its time
 * budget.
 */
import { expect } from 'chai';
import { ReadyKinds } from '../../../src/engine/wakeups/ready-kinds.ts';
import { noMarks } from '../../../src/store/sql/queue/heads.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { anyJob, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';

describe('ReadyKinds (A5)', () => {
  onEveryEngine((engineKind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await engineKind.open();
      engine = engineOn(store.database);
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    const kindOf = (stream: string, available: string[] = []) => ({
      name: `${stream} ${available}`,
      streams: [stream],
      filter: { ...anyJob, streams: stream === '' ? null : [stream], available },
    });

    it('finds streams with jobs that suit a waiting kind, and no others', async () => {
      await submitted(
        engine,
        { stream: 's' },
        { stream: 't', constraints: { gpu_required: true } },
        { stream: 'nobody waits' },
      );
      const ready = new ReadyKinds({ database: store.database, lowWaterMarks: noMarks });
      const kinds = [kindOf(''), kindOf('s'), kindOf('t'), kindOf('u')];
      expect([...(await ready.find(kinds))]).to.deep.equal(['s']);
      expect([...(await ready.find([...kinds, kindOf('t', ['gpu'])]))]).to.deep.equal(['s', 't']);
    });

    it('continues behind the last kind when its time budget is used up', async () => {
      // A stream without jobs costs no query. Those of a and b have one that no waiting kind may take.
      const constraints = { gpu_required: true };
      await submitted(engine, { stream: 'a', constraints }, { stream: 'b', constraints }, { stream: 'c' });
      const ready = new ReadyKinds({ database: store.database, lowWaterMarks: noMarks, budgetMs: 0 });
      const kinds = ['a', 'b', 'c'].map((stream) => kindOf(stream));
      const found: string[][] = [];
      for (let sweep = 0; sweep < 4; sweep++) found.push([...(await ready.find(kinds))]);
      expect(found).to.deep.equal([[], [], ['c'], []]);
    });
  });
});
