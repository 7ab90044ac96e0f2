import type { JobEvent } from '../../domain/job.ts';
import type { Database } from '../database.ts';
import { Event } from '../entities.ts';
import { toEvent } from './job-record.ts';

/** A job's history after a given event, oldest first. */
export async function listEvents(
  database: Database,
  jobId: string,
  afterEventId: string,
  limit: number,
  signal?: AbortSignal,
): Promise<JobEvent[]> {
  const rows = await database.read(
    (em) =>
      em.find(
        Event,
        { job_id: jobId, event_id: { $gt: afterEventId } },
        { orderBy: { event_id: 'asc' }, limit },
      ),
    signal,
  );
  return rows.map(toEvent);
}
