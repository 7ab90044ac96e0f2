/** How wide the tables of commands are. */
import { expect } from 'chai';
import { lineWidth, table } from '../../../src/cli/support/output.ts';

describe('the width of a line', () => {
  it('is that of the terminal', () => {
    for (const columns of [40, 80, 200]) expect(lineWidth({ isTTY: true, columns })).to.equal(columns);
  });

  it('has no limit where there is no terminal, or one that does not know its width', () => {
    for (const stream of [
      {},
      { columns: 80 },
      ...[0, Number.NaN].map((columns) => ({ isTTY: true, columns })),
    ])
      expect(lineWidth(stream), JSON.stringify(stream)).to.equal(Number.POSITIVE_INFINITY);
    expect(lineWidth({ isTTY: true })).to.equal(Number.POSITIVE_INFINITY);
    expect(table(['JOB'], [['load30']], lineWidth({ isTTY: true, columns: 0 }))).to.equal('JOB\nload30');
  });

  it('is 40 where the terminal is narrower', () => {
    for (const columns of [1, 39]) expect(lineWidth({ isTTY: true, columns })).to.equal(40);
  });
});
