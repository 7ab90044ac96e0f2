import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { DomainError } from '../../../src/domain/errors.ts';
import { ReceiveBudget } from '../../../src/lib/http/receive-budget.ts';

const code = (work: () => void): string => {
  try {
    work();
  } catch (error) {
    if (error instanceof DomainError) return error.code;
    throw error;
  }
  return 'accepted';
};

describe('the receive budget (A3, A4)', () => {
  it('refuses a request when requests that make progress use the whole budget', () => {
    const budget = new ReceiveBudget({ bytesMax: 1_000, stallMs: 60_000 });
    const evicted: string[] = [];
    const [first, second] = ['first', 'second'].map((name) => budget.open(() => evicted.push(name)));
    first?.add(900);
    expect(code(() => second?.add(200))).to.equal('overloaded');
    expect(evicted).to.deep.equal([]);
    expect(budget.bytes).to.equal(900);
  });

  it('evicts the request that stalled first, and no more than it needs', () => {
    const budget = new ReceiveBudget({ bytesMax: 1_000, stallMs: 0 });
    const evicted: string[] = [];
    const [first, second, third] = ['first', 'second', 'third'].map((name) =>
      budget.open(() => evicted.push(name)),
    );
    first?.add(400);
    second?.add(400);
    first?.add(100);
    third?.add(300);
    expect(evicted).to.deep.equal(['second']);
    expect(budget.bytes).to.equal(800);
  });

  it('returns memory to the budget once, however often a request is closed', () => {
    const budget = new ReceiveBudget({ bytesMax: 1_000, stallMs: 0 });
    const receiving = budget.open(() => {});
    receiving.add(600);
    receiving.close();
    receiving.close();
    receiving.add(100);
    expect(budget.bytes).to.equal(0);
  });

  it('refuses a body that arrives in tiny pieces, and accepts one in pieces of usual size', () => {
    const budget = new ReceiveBudget();
    const tiny = budget.open(() => {});
    expect(
      code(() => {
        for (let i = 0; i < 2_000; i++) tiny.add(1);
      }),
    ).to.equal('invalid_request');
    const usual = budget.open(() => {});
    expect(
      code(() => {
        for (let i = 0; i < 2_000; i++) usual.add(1_000);
      }),
    ).to.equal('accepted');
    for (const one of [tiny, usual]) one.close();
    expect(budget.bytes).to.equal(0);
  });

  it('evicts a request that is slower than the rate, even if its last piece has just arrived', async () => {
    const budget = new ReceiveBudget({ bytesMax: 1_000, bytesPerS: 1_000, stallMs: 100 });
    const evicted: string[] = [];
    const [slow, fast, third] = ['slow', 'fast', 'third'].map((name) =>
      budget.open(() => evicted.push(name)),
    );
    slow?.add(400);
    for (let i = 0; i < 6; i++) {
      await delay(30);
      slow?.add(1);
      fast?.add(90);
    }
    expect(code(() => third?.add(300))).to.equal('accepted');
    expect(evicted).to.deep.equal(['slow']);
    for (const one of [fast, third]) one?.close();
  });

  it('ends a request that fell behind the rate, and counts no bytes in advance', async () => {
    const budget = new ReceiveBudget({ bytesPerS: 1_000, behindMs: 100, sweepMs: 10 });
    const reasons: string[] = [];
    const receiving = budget.open(({ message }) => reasons.push(message));
    receiving.add(100_000);
    await delay(300);
    expect(reasons).to.have.length(1);
    expect(reasons[0]).to.match(/^overloaded: .* 0\.1 s behind/);
    expect(budget.bytes).to.equal(0);
  });

  it('neither evicts nor ends a request while the server does not read it', async () => {
    const budget = new ReceiveBudget({
      bytesMax: 1_000,
      bytesPerS: 1_000,
      stallMs: 50,
      behindMs: 100,
      sweepMs: 10,
    });
    const evicted: string[] = [];
    let isPaused = true;
    const receiving = budget.open(
      () => evicted.push('paused'),
      () => isPaused,
    );
    receiving.add(900);
    await delay(300);
    const other = budget.open(() => {});
    expect(code(() => other.add(200))).to.equal('overloaded');
    expect(evicted).to.deep.equal([]);
    isPaused = false;
    await delay(300);
    expect(evicted).to.deep.equal(['paused']);
    other.close();
  });
});
