import { type Kysely, sql as raw } from 'kysely';
import { type JobEvent, type JobWithResult, type JsonObject, priorities } from '../../../domain/jobs/job.ts';
import { eventNumber, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { type EntitySql, sqlWord } from '../../connection/sql.ts';
import { select, type Tables } from '../../schema/tables.ts';
import { type EventRecord, numbersAhead, toEvents } from './record.ts';

const eventColumns = [
  'job_id',
  'event_id',
  'at',
  'lease_id',
  'type',
  'from_state',
  'to_state',
  'actor',
  'data',
  'attempt',
  'fence',
  'ttl_s',
  'expires_at',
  'release_status',
] as const;

/**
 * The submission of a job as a row of its history. Jobs of earlier versions have a real row; see `record.ts`.
 */
const submissionOf = (tables: Kysely<Tables>, jobId: string) =>
  tables
    .selectFrom('jobs as job')
    .select([
      'job.job_id',
      'job.seq as event_id',
      'job.created_at as at',
      raw<string | null>`null::uuid`.as('lease_id'),
      raw<number>`${raw.lit(eventNumber('JOB_SUBMITTED'))}::smallint`.as('type'),
      raw<number | null>`null::smallint`.as('from_state'),
      raw<number | null>`${raw.lit(stateNumber('QUEUED'))}::smallint`.as('to_state'),
      'job.addon_id as actor',
      raw<JsonObject | null>`jsonb_build_object('priority', ${raw.raw(sqlWord(priorities, 'job.priority'))})`.as(
        'data',
      ),
      raw<number | null>`null::int`.as('attempt'),
      raw<string | null>`null::bigint`.as('fence'),
      raw<number | null>`null::int`.as('ttl_s'),
      raw<Date | null>`null::timestamptz`.as('expires_at'),
      raw<number | null>`null::smallint`.as('release_status'),
    ])
    .where('job.job_id', '=', jobId)
    .where('job.seq', '>', (eb) =>
      eb.selectFrom('submissions_told').select('after_seq').where('told_id', '=', 1),
    );

/** The other rows of a job's history. */
export const rowsOf = (tables: Kysely<Tables>, jobId: string) =>
  tables.selectFrom('job_events').select(eventColumns).where('job_id', '=', jobId);

/**
 * Rows of a job's history with its submission. The caller selects, orders and limits the other rows, so that
 * the log is read from the end that the caller needs.
 */
export const historyOf = (tables: Kysely<Tables>, jobId: string, rows: ReturnType<typeof rowsOf>) =>
  submissionOf(tables, jobId).unionAll(tables.selectFrom(rows.as('row')).selectAll());

/** Clocks may have been set back while the job existed, and one more day costs little. */
const marginMs = 86_400_000;

/**
 * A job's history after a given event, oldest first. Reads only the partitions of days in which the job
 * existed.
 */
export async function listEvents(
  sql: EntitySql,
  { job, result }: JobWithResult,
  afterEventId: string,
  limit: number,
  signal?: AbortSignal,
): Promise<JobEvent[]> {
  const after = BigInt(afterEventId);
  // A row may also contain events with higher ids than its own.
  const afterRow = String(after - BigInt(numbersAhead));
  const rowsMax = limit + numbersAhead;
  const rows = await select(
    sql,
    (tables) => {
      const recent = rowsOf(tables, job.jobId)
        .where('event_id', '>', afterRow)
        .where('at', '>=', new Date(job.createdAtMs - marginMs))
        .$if(result !== null, (query) =>
          query.where('at', '<', new Date((result?.finishedAtMs ?? 0) + marginMs)),
        )
        .orderBy('event_id')
        .limit(rowsMax);
      return tables
        .selectFrom(historyOf(tables, job.jobId, recent).as('event'))
        .selectAll()
        .where('event_id', '>', afterRow)
        .orderBy('event_id')
        .limit(rowsMax);
    },
    signal,
  );
  const events = rows.flatMap((row) => toEvents(row as EventRecord));
  return events.filter(({ eventId }) => BigInt(eventId) > after).slice(0, limit);
}
