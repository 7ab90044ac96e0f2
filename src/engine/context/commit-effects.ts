import type { Envelope, SentMessage } from '../../domain/streams/stream-message.ts';
import type { EndCounts } from '../../telemetry/job-metrics.ts';

/**
 * What the server must do after a commit. A use case collects the effects while its transaction runs, and
 * passes them to `CommitPublisher.publish` as soon as the commit has succeeded.
 */
export interface CommitEffects {
  /** Jobs that may have changed: the calls that watch them read them again. */
  jobsChanged?: readonly string[] | undefined;
  /** The stream of each job that became ready; null for a job without one. */
  jobsReady?: readonly (string | null)[] | undefined;
  /**
   * The same for jobs that an operator or a worker returned to the queue. They wake waiting requests, but do
   * not count in the rate at which jobs become ready.
   */
  jobsReturned?: readonly (string | null)[] | undefined;
  /** How many leases or jobs ended, so that other jobs may be granted: 1 if the number is not known. */
  roomMade?: number | undefined;
  /** Units that were freed; they count in the rate of freed units. */
  unitsFreed?: number | undefined;
  /** Leases that changed other than by their workers: their streams are notified. */
  leasesChanged?: readonly string[] | undefined;
  /** Events of files were written. */
  filesChanged?: boolean | undefined;
  /** Messages whose attempts ended. */
  messagesEnded?: readonly SentMessage[] | undefined;
  /** Messages of jobs that were queued. */
  messagesQueued?: readonly Envelope[] | undefined;
  /** In how many milliseconds the earliest deadline passes that the commit has set; Infinity without one. */
  nextDeadlineMs?: number | undefined;
  /** How many jobs were submitted. */
  submitted?: number | undefined;
  /** Jobs that ended. */
  ended?: EndCounts | undefined;
  /** Grants, and how long their jobs had waited. A grant that is named twice counts once. */
  granted?: readonly { waitMs?: number | null | undefined }[] | undefined;
}
