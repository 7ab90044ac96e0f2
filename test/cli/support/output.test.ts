/** The width of output, and the one style of its times and sentences. */
import { expect } from 'chai';
import { age, lineWidth, paragraph, plain, sentence, when } from '../../../src/cli/support/output.ts';

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
  });

  it('uses 40 columns for a narrower terminal', () => {
    for (const columns of [1, 39]) expect(lineWidth({ isTTY: true, columns })).to.equal(40);
  });
});

describe('the text of commands', () => {
  const now = Date.parse('2025-12-28T20:15:30.000Z');

  it('prints times in UTC, and their distance from now', () => {
    expect(when('2025-12-28T20:15:00.123Z', now)).to.equal('2025-12-28 20:15:00 (30 s ago)');
    expect(when('2025-12-28T22:15:35Z', now)).to.equal('2025-12-28 22:15:35 (in 2 h)');
    expect(age('2025-12-28T20:12:10Z', now)).to.equal('3 min 20 s ago');
    expect(when(null, now)).to.equal('-');
  });

  it('prints the times in a sentence of the server in the same style', () => {
    expect(sentence('not before 2026-01-02T03:04:05.678Z, in 12 s')).to.equal(
      'not before 2026-01-02 03:04:05, in 12 s',
    );
  });

  it('prints no control characters for the terminal', () => {
    expect(plain('a\u001b[31mred\r\nb\u202ec')).to.equal('a [31mred bc');
  });

  it('indents the following lines of a long line as far as its value', () => {
    expect(paragraph('halted: the file is leased\n    held by   ann, process 7 on host', 30)).to.equal(
      ['halted: the file is leased', '    held by   ann, process 7', '              on host'].join('\n'),
    );
    expect(paragraph('one long line', Number.POSITIVE_INFINITY)).to.equal('one long line');
  });
});
