/**
 * The guarantee: sweeps examine every waiting request class in turn, however many there are, and none exceeds
 * its time budget.
 */
import { expect } from 'chai';
import { ReadyClasses } from '../../../src/engine/wakeups/ready-classes.ts';
import { noMarks } from '../../../src/store/sql/queue/heads.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { anyJob, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';

describe('ReadyClasses (A5)', () => {
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

    const classOf = (stream: string, available: string[] = []) => ({
      name: `${stream} ${available}`,
      streams: [stream],
      filter: { ...anyJob, streams: stream === '' ? null : [stream], available },
    });

    it('finds streams with jobs that suit a waiting request class, and no others', async () => {
      await submitted(
        engine,
        { stream: 's' },
        { stream: 't', constraints: { gpu_required: true } },
        { stream: 'nobody waits' },
      );
      const ready = new ReadyClasses({ database: store.database, lowWaterMarks: noMarks });
      const classes = [classOf(''), classOf('s'), classOf('t'), classOf('u')];
      expect([...(await ready.find(classes))]).to.deep.equal(['s']);
      expect([...(await ready.find([...classes, classOf('t', ['gpu'])]))]).to.deep.equal(['s', 't']);
    });

    it('continues behind the last request class when its time budget is used up', async () => {
      // A stream without jobs costs no query. Those of a and b have one that no waiting class may take.
      const constraints = { gpu_required: true };
      await submitted(engine, { stream: 'a', constraints }, { stream: 'b', constraints }, { stream: 'c' });
      const ready = new ReadyClasses({ database: store.database, lowWaterMarks: noMarks, budgetMs: 0 });
      const classes = ['a', 'b', 'c'].map((stream) => classOf(stream));
      const found: string[][] = [];
      for (let sweep = 0; sweep < 4; sweep++) found.push([...(await ready.find(classes))]);
      expect(found).to.deep.equal([[], [], ['c'], []]);
    });
  });
});
