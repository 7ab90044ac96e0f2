/**
 * What a submitter learns of an earlier job with the same `client_request_id` that its scopes do not reach:
 * that the key is in use, and neither the job nor its id. Such a job has the same submitter, and another type
 * or stream.
 */
import { DomainError } from '../../domain/errors.ts';
import type { Submitted } from '../jobs/submitter.ts';

type Outcome = Submitted | DomainError;

const keyInUse = (): DomainError =>
  new DomainError('duplicate_request', 'client_request_id: was used before', { field: 'client_request_id' });

/** The id of the earlier job, if the outcome names one. */
function firstJobIn(outcome: Outcome): string | undefined {
  if (outcome instanceof DomainError) return outcome.code === 'duplicate_request' ? outcome.jobId : undefined;
  return outcome.existing ? outcome.jobId : undefined;
}

/** The outcome as the caller may see it. `requireJob` throws `job_not_found` outside of the scopes. */
export async function hideFirstJob<One extends Outcome>(
  outcome: One,
  requireJob: (jobId: string) => Promise<void>,
): Promise<One | DomainError> {
  const jobId = firstJobIn(outcome);
  if (jobId === undefined) return outcome;
  try {
    await requireJob(jobId);
    return outcome;
  } catch (error) {
    if (error instanceof DomainError && error.code === 'job_not_found') return keyInUse();
    throw error;
  }
}
