import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { textArray } from '../array-params.ts';

// Checks each stream separately: its own lanes, of which there are few, until one has a ready job. Whether a
// crowd has one depends on requirements, so a stream with crowded lanes counts without a check.
const ready = preparedStatement(
  ['streams'],
  `
select requested.stream from unnest(@streams::text[]) as requested (stream)
where exists (
  select from lanes where lanes.own_stream = requested.stream and exists (
    select from live_jobs
    where live_jobs.lane_id = lanes.lane_id and state = ${stateNumber('QUEUED')} and check_at is null offset 0
  ) offset 0
) or exists (
  select from lanes where lanes.stream = requested.stream and lanes.own_stream is null offset 0
)`,
);

/** Those of these streams that may have a job; the empty one stands for jobs without a stream. */
export async function readyStreams(sql: Sql, streams: readonly string[]): Promise<Set<string>> {
  const rows = await ready.query<{ stream: string }>(sql, { streams: textArray(streams) });
  return new Set(rows.map(({ stream }) => stream));
}
