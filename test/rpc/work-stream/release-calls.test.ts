import { expect } from 'chai';
import type { EndOutcome } from '../../../src/engine/dispatch/lease-endings.ts';
import { newId } from '../../../src/lib/uuid.ts';
import type { NamedRelease } from '../../../src/rpc/work-stream/frames.ts';
import { ReleaseCalls } from '../../../src/rpc/work-stream/release-calls.ts';
import { eventually } from '../../support/server.ts';

const outcome = { requeued: false, deadLettered: false } as EndOutcome;

const release = (): NamedRelease => ({
  named: 'a',
  weight: 1,
  release: {
    leaseId: newId(),
    workerId: 'w',
    holder: null,
    token: null,
    jobId: null,
    status: 'SUCCEEDED',
    resultData: null,
    error: null,
    errorDetail: null,
    retryable: false,
    metrics: null,
    message: null,
    bytes: 0,
  },
});

describe('the releases of a work stream', () => {
  it('are over, and report the error, when the answer to a late outcome cannot be taken', async () => {
    const problem = new Error('the session is broken');
    const failures: unknown[] = [];
    const calls = new ReleaseCalls({
      leases: { endEach: async () => [Promise.resolve(outcome)] },
      onAnswer: () => {},
      onEnded: () => {
        throw problem;
      },
      onFailed: (error) => failures.push(error),
      onDone: () => {},
    });
    calls.gather([release()]);
    calls.schedule();
    await eventually('the calls are over', async () => calls.isIdle || undefined, 5_000);
    expect(failures).to.deep.equal([problem]);
  });
});
