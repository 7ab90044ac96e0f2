/** How long a client waits for a contended file, and that it repeats the request once. */
import { expect } from 'chai';
import { acquire } from '../../src/agent/acquire-and-wait.ts';
import type { Acquired, Contention } from '../../src/agent/files-client.ts';

const request = { owner_id: 'o', repository: 'r', paths: ['a'], owner: {} };
const contended = (retry_after_ms: number): Acquired => {
  const contention = { contention_id: 'c', retry_after_ms, blockers: [], paths: ['a'] };
  return { outcome: 'contended', contention: contention as unknown as Contention };
};
const granted: Acquired = { outcome: 'granted', leases: [] };
const halted = { outcome: 'halted', blocker_report: {} } as Acquired;

/** Plays answers back, and records what was done in which order. */
function play(answers: Acquired[], options: { timeoutMs?: number; signal?: AbortSignal } = {}) {
  const done: (string | number)[] = [];
  const api = {
    async acquire() {
      done.push('ask');
      return answers.shift() as Acquired;
    },
  };
  const wait = async (ms: number) => void done.push(ms);
  const onContended = () => void done.push('contended');
  return { done, result: acquire(api, request, { ...options, wait, onContended }) };
}

describe('acquireAndWait', () => {
  it('returns files that are granted at once, without output', async () => {
    const { done, result } = play([granted]);
    expect([await result, done]).to.deep.equal([granted, ['ask']]);
  });

  it('waits exactly as long as the contention requires, and repeats the request once', async () => {
    for (const last of [granted, halted]) {
      const { done, result } = play([contended(180_000), last]);
      expect(await result).to.equal(last);
      expect(done).to.deep.equal(['ask', 'contended', 180_001, 'ask']);
    }
  });

  it('waits for the rest of an earlier contention', async () => {
    const { done, result } = play([contended(3), halted]);
    expect(await result).to.equal(halted);
    expect(done).to.deep.equal(['ask', 'contended', 4, 'ask']);
  });

  it('waits anew for another file that is denied at the retry', async () => {
    const { done, result } = play([contended(180_000), contended(180_000), granted]);
    expect(await result).to.equal(granted);
    expect(done.filter((each) => each === 180_001)).to.have.length(2);
  });

  it('does not start a wait that exceeds its maximum', async () => {
    const { done, result } = play([contended(100), contended(150), granted], { timeoutMs: 200 });
    expect((await result).outcome).to.equal('timed out');
    expect(done).to.deep.equal(['ask', 'contended', 101, 'ask']);
  });

  it('sends no request after it was aborted', async () => {
    const off = AbortSignal.abort(130);
    const { done, result } = play([granted], { signal: off });
    expect(await result.catch((reason: unknown) => reason)).to.equal(130);
    expect(done).to.deep.equal([]);
  });

  it("waits on the machine's clock by default, and can be aborted during the wait", async () => {
    const off = new AbortController();
    const started = performance.now();
    const api = { acquire: async () => contended(180_000) };
    const result = acquire(api, request, { onContended: () => off.abort(), signal: off.signal });
    expect(await result.catch((error: Error) => error.name)).to.equal('AbortError');
    expect(performance.now() - started).to.be.lessThan(5_000);
  });
});
