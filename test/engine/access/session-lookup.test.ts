import { expect } from 'chai';
import type { Session } from '../../../src/domain/access/session.ts';
import { SessionLookup } from '../../../src/engine/access/session-lookup.ts';
import { failure } from '../../support/failure.ts';

describe('the lookup of unknown sessions', () => {
  it('runs one statement at a time, for all that wait', async () => {
    const reads: { hashes: readonly string[]; answer: (found: readonly Session[]) => void }[] = [];
    const lookup = new SessionLookup(
      (hashes) => new Promise((answer) => void reads.push({ hashes, answer })),
    );
    const first = lookup.find('a');
    await Promise.resolve();
    const others = [lookup.find('b'), lookup.find('c'), lookup.find('b')];
    await new Promise((resolve) => setImmediate(resolve));
    expect(reads.map(({ hashes }) => hashes)).to.deep.equal([['a']]);
    reads[0]?.answer([]);
    expect(await first).to.equal(undefined);
    await new Promise((resolve) => setImmediate(resolve));
    expect(reads.map(({ hashes }) => hashes)).to.deep.equal([['a'], ['b', 'c']]);
    const found = { hash: 'b' } as Session;
    reads[1]?.answer([found]);
    expect(await Promise.all(others)).to.deep.equal([found, undefined, found]);
  });

  it('fails only the lookups of a failed statement, and refuses those that are too many', async () => {
    const reads: ((error: Error) => void)[] = [];
    const lookup = new SessionLookup(() => new Promise((_, reject) => void reads.push(reject)));
    const first = lookup.find('a');
    first.catch(() => {});
    await new Promise((resolve) => setImmediate(resolve));
    const waiting = Array.from({ length: 1_000 }, (_, i) => lookup.find(`h${i}`));
    for (const one of waiting) one.catch(() => {});
    expect(await failure(lookup.find('one too many'))).to.include({ code: 'overloaded' });
    reads[0]?.(new Error('away'));
    expect(String(await failure(first))).to.include('away');
    await new Promise((resolve) => setImmediate(resolve));
    expect(reads).to.have.length(2);
    reads[1]?.(new Error('away again'));
    expect(String(await failure(waiting[0] as Promise<unknown>))).to.include('away again');
  });
});
