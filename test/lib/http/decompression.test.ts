import { expect } from 'chai';
import { decompressInTurn } from '../../../src/lib/http/decompression.ts';

describe('the queue of decompressions', () => {
  it('decompresses two bodies at a time in the order of arrival, also when one fails (A4)', async () => {
    const begun: number[] = [];
    const ends: (() => void)[] = [];
    let running = 0;
    let most = 0;
    const works = Array.from({ length: 5 }, (_, i) =>
      decompressInTurn(async () => {
        begun.push(i);
        most = Math.max(most, ++running);
        await new Promise<void>((resolve) => ends.push(resolve));
        running -= 1;
        if (i % 2 === 1) throw new Error(`failed ${i}`);
        return i;
      }),
    );
    const settled = Promise.allSettled(works);
    for (let i = 0; i < works.length; i++) {
      expect(begun).to.deep.equal([0, 1, 2, 3, 4].slice(0, Math.min(i + 2, 5)));
      ends[i]?.();
      await new Promise(setImmediate);
    }
    const outcomes = (await settled).map((one) => (one.status === 'fulfilled' ? one.value : 'failed'));
    expect(outcomes).to.deep.equal([0, 'failed', 2, 'failed', 4]);
    expect(most).to.equal(2);
  });
});
