/** The width of the tables that commands print. */
import { expect } from 'chai';
import { lineWidth, table } from '../../../src/cli/support/output.ts';

describe('the width of a line', () => {
  it('uses the width of the terminal', () => {
    for (const columns of [40, 80, 200]) expect(lineWidth({ isTTY: true, columns })).to.equal(columns);
  });

  it('sets no limit without a terminal, or with one of unknown width', () => {
    for (const stream of [
      {},
      { columns: 80 },
      ...[0, Number.NaN].map((columns) => ({ isTTY: true, columns })),
    ])
      expect(lineWidth(stream), JSON.stringify(stream)).to.equal(Number.POSITIVE_INFINITY);
    expect(lineWidth({ isTTY: true })).to.equal(Number.POSITIVE_INFINITY);
    expect(table(['JOB'], [['load30']], lineWidth({ isTTY: true, columns: 0 }))).to.equal('JOB\nload30');
  });

  it('uses 40 columns for a narrower terminal', () => {
    for (const columns of [1, 39]) expect(lineWidth({ isTTY: true, columns })).to.equal(40);
  });
});
