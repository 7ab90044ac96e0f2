import { expect } from 'chai';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import { requestClassOf } from '../../../src/domain/queue/claim-filter.ts';
import type { FetchRequest } from '../../../src/engine/leases/acquirer.ts';
import { CreditFetcher } from '../../../src/engine/leases/credit-fetcher.ts';
import { anyJob } from '../../support/jobs.ts';

/** A CreditFetcher whose fetches the test answers. */
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
    leases: { fetch },
    workerId: 'w',
    filter: anyJob,
    requestClass: requestClassOf(anyJob, null),
    ttlS: null,
    canFetch,
    onGrants: (grants) => granted.push(grants.length),
    onFailed: (error) => failures.push(error),
  });
  return { order, asked, granted, failures };
}

describe('CreditFetcher', () => {
  it('runs one fetch at a time, for no more jobs than it has credit', async () => {
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

  it('does not charge new credit for a fetch that was running when credit was revoked', async () => {
    const { order, asked, granted } = ordered();
    order.add(5);
    order.revokeCredit();
    order.add(3);
    await asked[0]?.answer(5);
    expect([granted, order.credit, asked[1]?.count]).to.deep.equal([[5], 3, 3]);
    order.close();
  });

  it('fetches nothing while it must not, and continues when advanced', async () => {
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
