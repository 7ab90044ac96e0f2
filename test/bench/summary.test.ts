import { expect } from 'chai';
import type { Contest } from './contest.ts';
import { figureRecord } from './report.ts';
import { ratioRecords, summaryText } from './summary.ts';

const drain: Contest = {
  name: 'drain',
  unit: 'jobs/s',
  contenders: [
    { name: 'StreamWork', side: 'ours', rates: [40_000, 44_000, 42_000] },
    { name: 'AcquireLease', side: 'ours', rates: [4_000, 4_000, 4_000] },
    { name: 'somebody', side: 'peer', rates: [20_000, 20_000, 20_000] },
  ],
};

const lines = (text: string) => text.split('\n').map((line) => line.replace(/ {2,}/g, ' | '));

describe('what a run came to', () => {
  it('tells each figure with its median, its spread and whether it met its goal', () => {
    const records = [
      { name: 'submitted', unit: 'jobs/s', values: [3, 1, 2], goal: { atLeast: 3 } },
      { name: 'p99', unit: 'ms', values: [4.25], goal: { below: 5 } },
      { name: 'memory', unit: 'MiB', values: [120] },
    ].map((figure) => figureRecord('some', 'postgresql', figure));
    expect(lines(summaryText({ records, contests: [] })).slice(2)).to.deep.equal([
      'some | postgresql | submitted | 2.00 | 1.00–3.00 | jobs/s | MISSED',
      'some | postgresql | p99 | 4.25 | ms | met',
      'some | postgresql | memory | 120 | MiB',
    ]);
  });

  it('tells of a contest how many times as fast as each other ours are, with the spread', () => {
    expect(
      lines(summaryText({ records: [], contests: [drain] })).filter((line) => !line.startsWith('-')),
    ).to.deep.equal([
      'drain | jobs/s | least–most | A to it | B to it',
      'StreamWork | 42,000 | 40,000–44,000',
      'AcquireLease | 4,000 | 4,000–4,000',
      'somebody | 20,000 | 20,000–20,000 | 2.10 (2.00–2.20) | 0.20 (0.20–0.20)',
      'A: StreamWork',
      'B: AcquireLease',
    ]);
  });

  it('says nothing of a contest in which nobody of ours, or nobody else, took part', () => {
    const alone = { ...drain, contenders: drain.contenders.slice(0, 1) };
    const theirs = { ...drain, contenders: drain.contenders.slice(2) };
    expect(summaryText({ records: [], contests: [alone, theirs] })).to.equal('');
  });

  it('gives programs the ratios of every contest', () => {
    expect(
      ratioRecords([drain]).map(({ contest, ours, to, median }) => [contest, ours, to, median]),
    ).to.deep.equal([
      ['drain', 'StreamWork', 'somebody', 2.1],
      ['drain', 'AcquireLease', 'somebody', 0.2],
    ]);
  });
});
