/** Tables and lists that fit the terminal. */
import { expect } from 'chai';
import { fittedTable, listing } from '../../../src/cli/support/table.ts';
import { columnsOf } from '../../../src/lib/terminal-layout.ts';

describe('a table that fits the terminal', () => {
  const columns = [
    { heading: 'NAME', of: (row: string[]) => row[0], atLeast: 6 },
    { heading: 'N', of: (row: string[]) => row[1] },
    { heading: 'WORDS', of: (row: string[]) => row[2], atLeast: 8, rank: 1 },
    { heading: 'LEAST', of: (row: string[]) => row[3], rank: 2 },
  ];
  const rows = [['a-long-name', '1', 'some words that go on', 'x']];
  const at = (width: number) => fittedTable(columns, rows, { width }).split('\n');

  it('prints a table as wide as its cells if the terminal is wide enough (D25)', () => {
    expect(at(200)).to.deep.equal([
      'NAME         N  WORDS                  LEAST',
      'a-long-name  1  some words that go on  x',
    ]);
  });

  it('shortens the widest cells, then drops the least important columns, and cuts no others', () => {
    expect(at(35)).to.deep.equal(['NAME        N  WORDS          LEAST', 'a-long-na…  1  some words t…  x']);
    expect(at(20)).to.deep.equal(['NAME    N  WORDS', 'a-lon…  1  some wor…']);
    expect(at(12)).to.deep.equal(['NAME       N', 'a-long-n…  1']);
  });

  it('drops columns from the right where none may be omitted and the first one fits', () => {
    const ids = [
      { heading: 'JOB', of: ([id]: string[]) => id },
      { heading: 'STATE', of: ([, state]: string[]) => state },
    ];
    expect(fittedTable(ids, [['a-rather-long-id', 'QUEUED']], { width: 18 })).to.equal(
      'JOB\na-rather-long-id',
    );
  });

  it('prints no table wider than the terminal', () => {
    for (let width = 6; width < 60; width++)
      for (const line of at(width)) expect(columnsOf(line), `at ${width}`).to.be.at.most(width);
  });

  it('wraps a sentence at its words, below its beginning', () => {
    const wrapping = [
      { heading: 'CODE', of: ([code]: string[]) => code },
      { heading: 'WHY', of: ([, text]: string[]) => text, wraps: true as const, atLeast: 8 },
    ];
    const table = fittedTable(wrapping, [['units', 'needs 30 units, 12 are free']], { width: 22, indent: 2 });
    expect(table.split('\n')).to.deep.equal([
      '  CODE   WHY',
      '  units  needs 30',
      '         units, 12 are',
      '         free',
    ]);
  });

  it('aligns numbers to the right, and wide characters by their columns', () => {
    const table = fittedTable(
      [
        { heading: 'TYPE', of: ([type]: [string, number]) => type },
        { heading: 'UNITS', of: ([, units]: [string, number]) => units },
      ],
      [
        ['映画', 7],
        ['film', 1_200],
      ],
      { width: 80 },
    );
    expect(table.split('\n')).to.deep.equal(['TYPE  UNITS', '映画      7', 'film   1200']);
  });

  it('prints every cell in full without a terminal, and pads no line for a very long one', () => {
    const path = `deep/${'x'.repeat(3_000)}`;
    const lines = fittedTable(columns.slice(0, 2), [
      [path, '1'],
      ['a', '2'],
    ]).split('\n');
    expect(lines[1]).to.equal(`${path}  1`);
    expect(lines[2]?.length).to.be.below(110);
  });
});

describe('a list of names and values', () => {
  const entries = [
    ['one', 1],
    ['three', { a: 1 }],
    ['none', null],
  ] as const;

  it('aligns the values, with a dash for none', () => {
    expect(listing(entries, { width: 100 })).to.equal('one    1\nthree  {"a":1}\nnone   -');
  });

  it('continues a long value below its beginning', () => {
    expect(listing([['note', 'some words that go on and on']], { width: 26 })).to.equal(
      'note  some words that go\n      on and on',
    );
  });
});
