import { expect } from 'chai';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import type { FetchRequest } from '../../../src/engine/leases/acquirer.ts';
import { CreditFetcher } from '../../../src/engine/leases/credit-fetcher.ts';
import { anyJob } from '../../support/jobs.ts';

/** An order whose questions are answered by the test. */
function ordered(canFetch = () => true) {
  const asked: { count: number; answer(jobs: number): Promise<void> }[] = [];
  const granted: number[] = [];
  const failures: unknown[] = [];
  const fetch = ({ count }: FetchRequest) =>
    new Promise<readonly Grant[]>((resolve) => {
      const answer = async (jobs: number) => {
        resolve(Array.from({ length: jobs }, () => ({}) as Grant));
        await new Promise((turned) => setImmediate(turned));
      };
      asked.push({ count: count(), answer });
    });
  const order = new CreditFetcher({
    acquirer: { fetch },
    workerId: 'w',
    filter: anyJob,
    ttlS: null,
    canFetch,
    onGrants: (grants) => granted.push(grants.length),
    onFailed: (error) => failures.push(error),
  });
  return { order, asked, granted, failures };
}

describe('a standing order', () => {
  it('asks one question at a time, for no more than it has credit for', async () => {
    const { order, asked, granted } = ordered();
    order.add(3);
    order.add(4);
    expect(asked).to.have.length(1);
    await asked[0]?.answer(2);
    expect([granted, order.credit, asked[1]?.count]).to.deep.equal([[2], 5, 5]);
    await asked[1]?.answer(5);
    expect([order.credit, asked.length, order.isIdle]).to.deep.equal([0, 2, true]);
    order.close();
  });

  it('does not let new credit pay for what was on its way when the old was taken back', async () => {
    const { order, asked, granted } = ordered();
    order.add(5);
    order.revokeCredit();
    order.add(3);
    await asked[0]?.answer(5);
    expect([granted, order.credit, asked[1]?.count]).to.deep.equal([[5], 3, 3]);
    order.close();
  });

  it('asks nothing while it may not, and goes on when it is told that it may', async () => {
    let may = false;
    const { order, asked } = ordered(() => may);
    order.add(1);
    expect(asked).to.have.length(0);
    may = true;
    order.advance();
    expect(asked).to.have.length(1);
    order.close();
    await asked[0]?.answer(0);
    order.add(1);
    expect(asked).to.have.length(1);
  });
});
