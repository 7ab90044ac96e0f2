import { expect } from 'chai';
import type { Verdict } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import { VerdictOutbox } from '../../../src/rpc/heartbeat-stream/verdict-outbox.ts';

const most = limits.verdictsPerFrame;

/** Answers whose leases are numbers, each with a detail that names its lease. */
function numbered(from: number, count: number) {
  const names = Array.from({ length: count }, (_, i) => String(from + i));
  const leases = names.map((named) => ({ named, weight: 1 }));
  const verdicts = names.map((detail): Verdict => ({ kind: 'lost', code: 'lease_not_found', detail }));
  return { leases, verdicts };
}

describe('VerdictOutbox', () => {
  let queue: VerdictOutbox;
  beforeEach(() => {
    queue = new VerdictOutbox();
  });
  const owe = (from: number, count: number) => {
    const { leases, verdicts } = numbered(from, count);
    queue.add(leases, verdicts);
  };

  it('returns verdicts in order and in the fewest frames, however they were added', () => {
    for (const [sizes, frames] of [
      [[1], [1]],
      [[most], [most]],
      [[2 * most + 1], [most, most, 1]],
      [[1, 2, 3], [6]],
      [
        [most - 1, 2, most],
        [most, most, 1],
      ],
      [
        [most, most],
        [most, most],
      ],
    ] as const) {
      let count = 0;
      for (const size of sizes) {
        owe(count, size);
        count += size;
      }
      let at = 0;
      for (const size of frames) {
        const { leases, verdicts } = queue.next();
        expect({ leases, verdicts }).to.deep.equal(numbered(at, size));
        at += size;
      }
      expect(queue.isEmpty).to.equal(true);
    }
  });

  it('returns no frame without verdicts, except for requested empty frames', () => {
    owe(0, 0);
    expect(queue.isEmpty).to.equal(true);
    owe(0, 1);
    queue.addEmptyFrame();
    queue.addEmptyFrame();
    expect([1, 2, 3].map(() => queue.next().leases.length)).to.deep.equal([0, 0, 1]);
    expect(queue.isEmpty).to.equal(true);
  });

  it('drops all verdicts when the stream ends', () => {
    owe(0, 3);
    queue.addEmptyFrame();
    queue.clear();
    expect(queue.isEmpty).to.equal(true);
  });
});
