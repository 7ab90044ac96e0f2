/**
 * Publishes the effects of commits. It is the only part of the engine that notifies waiters, updates the
 * rates of the retry hints, passes messages to the transport, wakes the reaper or counts outcomes of jobs.
 *
 * Guarantees:
 * - `publish` does not wait: it has called all parts when it returns.
 * - The order is always the same: metrics, rates, available work, messages, changes, the next deadline.
 *
 * A caller publishes before it waits for a synchronous standby or runs another statement. Both may fail, and
 * the commit has taken effect all the same.
 */
import type { JobMeter } from '../../telemetry/job-metrics.ts';
import type { Transport } from '../../transport/transport.ts';
import type { RetryHints } from '../dispatch/retry-hints.ts';
import type { LeaseReaper } from '../maintenance/lease-reaper.ts';
import type { Notifier } from '../wakeups/notifier.ts';
import { workAvailableOf } from '../wakeups/work-available.ts';
import type { CommitEffects } from './commit-effects.ts';

export interface CommitPublisherOptions {
  notifier: Pick<Notifier, 'publishJobs' | 'publishWorkAvailable' | 'publishLeases' | 'publishFiles'>;
  retryHints: Pick<RetryHints, 'noteJobsReady' | 'noteUnitsFreed'>;
  transport: Pick<Transport, 'send' | 'ack'>;
  reaper: Pick<LeaseReaper, 'expectIn'>;
  jobMeter: JobMeter;
}

export class CommitPublisher {
  readonly #options: CommitPublisherOptions;

  constructor(options: CommitPublisherOptions) {
    this.#options = options;
  }

  publish(effects: CommitEffects): void {
    const { notifier, retryHints, transport, reaper } = this.#options;
    const { jobsChanged, jobsReady, jobsReturned, roomMade, unitsFreed, leasesChanged } = effects;
    const { messagesEnded, messagesQueued, filesChanged, nextDeadlineMs } = effects;
    this.#count(effects);
    if (unitsFreed !== undefined) retryHints.noteUnitsFreed(unitsFreed);
    if (jobsReady !== undefined) retryHints.noteJobsReady(jobsReady.length);
    if (jobsReady || jobsReturned || roomMade) {
      const streams =
        jobsReady && jobsReturned ? [...jobsReady, ...jobsReturned] : (jobsReady ?? jobsReturned);
      notifier.publishWorkAvailable(workAvailableOf(streams ?? [], roomMade));
    }
    if (messagesEnded) transport.ack(messagesEnded);
    if (messagesQueued) transport.send(messagesQueued);
    if (jobsChanged) notifier.publishJobs(jobsChanged);
    if (leasesChanged) notifier.publishLeases(leasesChanged);
    if (filesChanged) notifier.publishFiles();
    if (nextDeadlineMs !== undefined) reaper.expectIn(nextDeadlineMs);
  }

  #count({ submitted, ended, granted }: CommitEffects): void {
    const { jobMeter } = this.#options;
    if (submitted !== undefined) jobMeter.submitted.add(submitted);
    if (ended) jobMeter.ended(ended);
    if (granted) for (const { waitMs = null } of new Set(granted)) jobMeter.granted(waitMs);
  }
}
