/**
 * What a credential may reach: lists of exact names, or of prefixes that end in `*`. An absent list reaches
 * nothing of its kind, and `*` alone reaches everything.
 */
export const scopeKinds = ['addon_ids', 'streams', 'job_types', 'repositories'] as const;

export type ScopeKind = (typeof scopeKinds)[number];

export type Scopes = Readonly<Record<ScopeKind, readonly string[]>>;

/** Reaches everything: the scopes of a server without authentication. */
export const everything: Scopes = { addon_ids: ['*'], streams: ['*'], job_types: ['*'], repositories: ['*'] };

/** Reaches nothing. */
export const nothing: Scopes = { addon_ids: [], streams: [], job_types: [], repositories: [] };

export const isPrefix = (pattern: string): boolean => pattern.endsWith('*');

export const reachesAll = (patterns: readonly string[]): boolean => patterns.includes('*');

/** Whether nothing of any kind is outside. */
export const reachesEverything = (scopes: Scopes): boolean =>
  scopeKinds.every((kind) => reachesAll(scopes[kind]));

export const matches = (patterns: readonly string[], name: string): boolean =>
  patterns.some((pattern) => (isPrefix(pattern) ? name.startsWith(pattern.slice(0, -1)) : pattern === name));

/** Whether every name that `inner` matches is matched by `outer` too: a new credential reaches no further. */
export const covers = (outer: readonly string[], inner: readonly string[]): boolean =>
  inner.every((pattern) =>
    outer.some((wide) => (isPrefix(wide) ? pattern.startsWith(wide.slice(0, -1)) : wide === pattern)),
  );

/** The attributes of a job that scopes apply to. A job without a stream is in every scope of streams. */
export interface JobScope {
  addonId: string;
  jobType: string;
  stream: string | null;
}

export const reachesJob = (scopes: Scopes, { addonId, jobType, stream }: JobScope): boolean =>
  matches(scopes.addon_ids, addonId) &&
  matches(scopes.job_types, jobType) &&
  (stream === null || matches(scopes.streams, stream));

/** Whether the scopes reach every job, so that no statement needs a filter. */
export const reachesAllJobs = (scopes: Scopes): boolean =>
  reachesAll(scopes.addon_ids) && reachesAll(scopes.job_types) && reachesAll(scopes.streams);
