import { expect } from 'chai';
import { compare, orderOf } from './duel.ts';
import { comparisonText } from './report.ts';

const heading = { scenario: 'submit', unit: 'calls/s', bound: 0.97 };
const entrant = { name: 'SubmitJob' };
const faulty = { name: 'SubmitJob', failure: () => '2 jobs were handed out twice' };

/** Rounds of a second each: so many operations, and so much processor time in ms. */
const rounds = (done: readonly number[], serverCpuMs?: number, databaseCpuMs?: number) =>
  done.map((each) => ({
    done: each,
    elapsedMs: 1_000,
    loadCpuMs: 1,
    serverCpuMs,
    databaseCpuMs,
    machineCpuMs: undefined,
  }));

describe('rounds of two trees in pairs', () => {
  it('begin with the one tree in every other pair, and with the other in those between', () => {
    expect([0, 1, 2, 3].map((pair) => orderOf(pair)[0])).to.deep.equal(['own', 'other', 'own', 'other']);
    expect(orderOf(-1)).to.deep.equal(['other', 'own']);
  });

  it('compare rates within each pair, so that a slow minute is slow for both', () => {
    const { ratio, medians, verdict } = compare(
      heading,
      { own: entrant, other: entrant },
      {
        own: rounds([200, 20, 100, 2_000, 60, 80]),
        other: rounds([100, 10, 50, 1_000, 30, 40]),
      },
    );
    expect(ratio).to.deep.equal({ values: [2, 2, 2, 2, 2, 2], median: 2, interval: { low: 2, high: 2 } });
    expect(medians).to.deep.equal({ own: 90, other: 45 });
    expect(verdict).to.equal('holds');
  });

  it('compare processor time of server and database by the operation', () => {
    const six = [100, 100, 100, 100, 100, 100];
    const { processor } = compare(
      heading,
      { own: entrant, other: entrant },
      {
        own: rounds(six, 20, 10),
        other: rounds(six, 40, 20),
      },
    );
    expect(processor?.medians).to.deep.equal({ own: 300, other: 600 });
    expect(processor?.ratio.interval).to.deep.equal({ low: 0.5, high: 0.5 });
    expect(processor?.server).to.deep.equal({ own: 200, other: 400 });
  });

  it('say nothing of processor time that the system does not tell, or that was too short to be counted', () => {
    const of = (serverCpuMs?: number, databaseCpuMs?: number) =>
      compare(
        heading,
        { own: entrant, other: entrant },
        {
          own: rounds([100], serverCpuMs, databaseCpuMs),
          other: rounds([100], 10, 10),
        },
      ).processor;
    expect(of(10, 10)).not.to.equal(undefined);
    expect(of(0, 0)).to.equal(undefined);
    expect(of(10)).to.equal(undefined);
  });

  it('say which tree did something wrong', () => {
    const taken = { own: rounds([100]), other: rounds([100]) };
    expect(compare(heading, { own: faulty, other: entrant }, taken).failure).to.equal(
      'this tree: 2 jobs were handed out twice',
    );
    expect(compare(heading, { own: entrant, other: faulty }, taken).failure).to.equal(
      'the other tree: 2 jobs were handed out twice',
    );
    expect(compare(heading, { own: entrant, other: entrant }, taken).failure).to.equal(undefined);
  });

  it('are told with both medians, the ratio with its interval, and the verdict', () => {
    const comparison = compare(
      heading,
      { own: entrant, other: entrant },
      {
        own: rounds([90, 91, 92, 93, 94, 95], 30, 15),
        other: rounds([100, 100, 100, 100, 100, 100], 30, 15),
      },
    );
    expect(comparisonText(comparison).split('\n')).to.deep.equal([
      '  SubmitJob: 92.5 against 100 calls/s, ratio 0.925 (0.900–0.950), bound 0.97: below',
      '    µs of processor each, server and database: 487 against 450, ratio 1.081 (1.053–1.111)',
      '    of which the server: 324 against 300',
    ]);
  });
});
