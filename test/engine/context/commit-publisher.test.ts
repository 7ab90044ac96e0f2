import { expect } from 'chai';
import type { CommitEffects } from '../../../src/engine/context/commit-effects.ts';
import { CommitPublisher } from '../../../src/engine/context/commit-publisher.ts';
import { JobCounts, JobMeter } from '../../../src/telemetry/job-metrics.ts';
import { Registry } from '../../../src/telemetry/registry.ts';

/** What a publisher calls for these effects, in order, and the metrics that it counts. */
function published(effects: CommitEffects): { calls: unknown[][]; metrics: string[] } {
  const calls: unknown[][] = [];
  const record =
    (name: string) =>
    (...args: unknown[]): void => {
      calls.push([name, ...args]);
    };
  const registry = new Registry();
  const publisher = new CommitPublisher({
    notifier: {
      publishJobs: record('publishJobs'),
      publishWorkAvailable: record('publishWorkAvailable'),
      publishLeases: record('publishLeases'),
      publishFiles: record('publishFiles'),
    },
    retryHints: { noteJobsReady: record('noteJobsReady'), noteUnitsFreed: record('noteUnitsFreed') },
    transport: { send: record('send'), ack: record('ack') },
    reaper: { expectIn: record('expectIn') },
    jobMeter: new JobMeter(registry),
  });
  publisher.publish(effects);
  const lines = registry.render().split('\n');
  return { calls, metrics: lines.filter((line) => /_total|_count|_sum/.test(line) && !line.startsWith('#')) };
}

const work = (jobs: [string, number][], unitsFreed: number) => ({ jobs: new Map(jobs), unitsFreed });
const queued = { jobId: 'j', stream: 'mail', attempt: 2 };
const sent = { stream: 'mail', messageId: '1-1' };

describe('CommitPublisher', () => {
  it('calls nothing for a commit without effects', () => {
    expect(published({})).to.deep.equal({ calls: [], metrics: [] });
    expect(published({ filesChanged: false })).to.deep.equal({ calls: [], metrics: [] });
  });

  it('publishes all effects in one order', () => {
    const { calls } = published({
      nextDeadlineMs: 5,
      filesChanged: true,
      leasesChanged: ['l'],
      jobsChanged: ['j'],
      messagesQueued: [queued],
      messagesEnded: [sent],
      roomMade: 2,
      jobsReady: ['mail', null, 'mail'],
      unitsFreed: 7,
    });
    expect(calls).to.deep.equal([
      ['noteUnitsFreed', 7],
      ['noteJobsReady', 3],
      [
        'publishWorkAvailable',
        work(
          [
            ['mail', 2],
            ['', 1],
          ],
          2,
        ),
      ],
      ['ack', [sent]],
      ['send', [queued]],
      ['publishJobs', ['j']],
      ['publishLeases', ['l']],
      ['publishFiles'],
      ['expectIn', 5],
    ]);
  });

  it('wakes waiting requests for returned jobs, and leaves them out of the rate', () => {
    expect(published({ jobsReturned: ['mail'] }).calls).to.deep.equal([
      ['publishWorkAvailable', work([['mail', 1]], 0)],
    ]);
    expect(published({ jobsReady: [null], jobsReturned: [null] }).calls).to.deep.equal([
      ['noteJobsReady', 1],
      ['publishWorkAvailable', work([['', 2]], 0)],
    ]);
  });

  it('wakes waiting requests for room alone, and leaves it out of the rate of units', () => {
    expect(published({ roomMade: 1 }).calls).to.deep.equal([['publishWorkAvailable', work([], 1)]]);
  });

  it('counts submitted, granted and ended jobs, and a grant that is named twice once', () => {
    const ended = new JobCounts();
    ended.ended('FAILED');
    ended.deadLetters = 1;
    ended.runMs.push(2_000);
    const grant = { waitMs: 3_000 };
    const { calls, metrics } = published({
      submitted: 4,
      ended,
      granted: [grant, grant, { waitMs: null }],
    });
    expect(calls).to.deep.equal([]);
    expect(metrics).to.deep.equal([
      'leasehold_jobs_submitted_total 4',
      'leasehold_jobs_total{outcome="failed"} 1',
      'leasehold_dead_letters_total 1',
      'leasehold_job_wait_seconds_sum 3',
      'leasehold_job_wait_seconds_count 1',
      'leasehold_job_run_seconds_sum 2',
      'leasehold_job_run_seconds_count 1',
    ]);
  });
});
