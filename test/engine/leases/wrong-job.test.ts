import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { submitted } from '../../support/jobs.ts';
import { acquired, beatFor, freshForEach } from '../../support/lease-helpers.ts';

describe('a heartbeat that names another job', () => {
  onEveryEngine((kind) => {
    const stage = freshForEach(kind);

    it('is refused beside a right one for the same lease', async () => {
      await submitted(stage.engine, {}, {});
      const [a, b] = [await acquired(stage.engine, 'a'), await acquired(stage.engine, 'b')];
      const wrong = { ...beatFor(a), jobId: b.job.jobId };
      const verdicts = await stage.engine.leases.heartbeatMany([beatFor(a), wrong, beatFor(a)]);
      expect(
        verdicts.map((verdict) => (verdict.kind === 'lost' ? verdict.code : verdict.kind)),
      ).to.deep.equal(['extended', 'job_mismatch', 'extended']);
    });
  });
});
