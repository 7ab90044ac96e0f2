import { type RawBuilder, sql as raw } from 'kysely';

/** The jobs that a credential reaches, as patterns for `like`; null for all of a kind. */
export interface ScopePatterns {
  addonIds: readonly string[] | null;
  jobTypes: readonly string[] | null;
  streams: readonly string[] | null;
}

/** A condition on the row `job` of `jobs`. A job without a stream is in every scope of streams. */
export function inScope({ addonIds, jobTypes, streams }: ScopePatterns): RawBuilder<boolean> {
  const parts = [
    ...(addonIds === null ? [] : [raw<boolean>`job.addon_id like any (${addonIds}::text[])`]),
    ...(jobTypes === null ? [] : [raw<boolean>`job.job_type like any (${jobTypes}::text[])`]),
    ...(streams === null
      ? []
      : [raw<boolean>`(job.stream is null or job.stream like any (${streams}::text[]))`]),
  ];
  return parts.length === 0 ? raw<boolean>`true` : raw<boolean>`(${raw.join(parts, raw` and `)})`;
}

/** A condition on the name of a worker. */
export const isWorkerIn = (column: string, patterns: readonly string[]): RawBuilder<boolean> =>
  raw<boolean>`${raw.ref(column)} like any (${patterns}::text[])`;
