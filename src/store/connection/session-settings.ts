/**
 * Settings of every connection.
 *
 * Statistics of a queue are outdated as soon as they are collected: a table that was empty at the last
 * ANALYZE may hold a million rows now, and the planner would scan all of them for a join. Prepared statements
 * therefore find rows by key or by the order of one index, and plan types that could do otherwise are
 * disabled. That includes sequential scans of small tables, because a plan made while a table is small is
 * kept while it grows. JIT compilation and parallel workers cost more than any statement here takes.
 *
 * Prepared statements are planned once, for all values. By default PostgreSQL replans statements of a dozen
 * parts whenever it estimates that the values make them cheaper, which it does for every small batch. That
 * took a quarter of its time.
 */
export const sessionSettings = {
  timezone: 'UTC',
  // `timeMs` reads times in this format.
  datestyle: 'ISO',
  // A statement that has waited for a row lock must see the row's new version.
  default_transaction_isolation: 'read committed',
  jit: 'off',
  max_parallel_workers_per_gather: '0',
  plan_cache_mode: 'force_generic_plan',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  enable_bitmapscan: 'off',
  enable_seqscan: 'off',
  statement_timeout: '30s',
  idle_in_transaction_session_timeout: '60s',
  lock_timeout: '10s',
} as const;

/** For the `options` of a connection string. */
export const sessionOptions = (): string =>
  Object.entries(sessionSettings)
    .map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`)
    .join(' ');

/** As statements, for an engine that has one session and no connection string. */
export const sessionStatements = (): string[] =>
  Object.entries(sessionSettings).map(([name, value]) => `set ${name} = '${value}'`);
