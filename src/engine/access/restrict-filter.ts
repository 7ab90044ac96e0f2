import type { Principal } from '../../domain/access/principal.ts';
import { isPrefix, reachesAll, reachesAllJobs } from '../../domain/access/scopes.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import type { ScopePatterns } from '../../store/sql/access/in-scope.ts';
import { denied, requireName } from './access-control.ts';

/**
 * The filter of a claim, limited to the scopes of its principal. What the claim names must be inside; where
 * it names nothing, the scopes take its place. The result is part of the request class, so a batch never
 * mixes the calls of different scopes.
 */
export function restrictFilter(principal: Principal, filter: ClaimFilter): ClaimFilter {
  const { scopes } = principal;
  if (reachesAllJobs(scopes)) return filter;
  for (const stream of filter.streams ?? []) requireName(principal, 'streams', stream, 'streams');
  if (filter.addonId !== null) requireName(principal, 'addon_ids', filter.addonId, 'addon_id');
  for (const type of filter.jobTypes ?? []) requireName(principal, 'job_types', type, 'accept_job_types');
  if (scopes.addon_ids.length === 0 || scopes.job_types.length === 0)
    throw denied('the credential reaches no jobs');
  const [onlyAddon, ...otherAddons] = scopes.addon_ids;
  const isOneAddon = onlyAddon !== undefined && otherAddons.length === 0 && !isPrefix(onlyAddon);
  const areTypesExact = !scopes.job_types.some(isPrefix);
  const addonId = filter.addonId ?? (isOneAddon ? onlyAddon : null);
  const jobTypes = filter.jobTypes ?? (areTypesExact ? [...scopes.job_types].sort() : null);
  const scope = {
    addonIds: addonId === null ? likePatterns(scopes.addon_ids) : null,
    jobTypes: jobTypes === null ? likePatterns(scopes.job_types) : null,
  };
  const isNeeded = scope.addonIds !== null || scope.jobTypes !== null;
  return { ...filter, addonId, jobTypes, ...(isNeeded ? { scope } : {}) };
}

/** The patterns for PostgreSQL's `like`, or null if they match everything. */
export function likePatterns(patterns: readonly string[]): readonly string[] | null {
  if (reachesAll(patterns)) return null;
  return patterns.map((pattern) => {
    const text = isPrefix(pattern) ? pattern.slice(0, -1) : pattern;
    return `${text.replace(/[\\%_]/g, '\\$&')}${isPrefix(pattern) ? '%' : ''}`;
  });
}

/** What a principal reaches, as patterns for a list; null for everything. */
export function scopePatternsOf({ kind, scopes }: Principal): ScopePatterns | null {
  if (kind === 'local' || reachesAllJobs(scopes)) return null;
  return {
    addonIds: likePatterns(scopes.addon_ids),
    jobTypes: likePatterns(scopes.job_types),
    streams: likePatterns(scopes.streams),
  };
}

/** A worker sees only its own leases; null for all of them. */
export const workersSeenBy = ({ kind, roles, workerIds }: Principal): readonly string[] | null =>
  kind === 'local' || roles.some((role) => role !== 'worker') ? null : likePatterns(workerIds);
