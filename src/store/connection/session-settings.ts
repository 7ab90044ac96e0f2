/**
 * What every connection is set to. Statistics of a queue are wrong the moment they are taken: a table that was
 * empty at the last ANALYZE holds a million rows now, and the planner walks all of them for the sake of a join. Hot
 * statements therefore find rows by key or by the order of one index, and the plans that could do otherwise are
 * switched off, as is reading a small table to its end: a plan that was made while the table was small is kept while it
 * grows. Compiling a plan, or starting further processes for it, costs more than any statement here takes.
 *
 * Hot statements are planned once, for all values. Left to itself, PostgreSQL makes plans of a dozen parts anew each time where
 * it thinks that the values make them cheaper, which it does of every small batch; that took a quarter of its time.
 */
export const sessionSettings = {
  timezone: 'UTC',
  // Times are read as they are written by this.
  datestyle: 'ISO',
  // Whoever has waited for a row must see what became of it.
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

/** As the `options` of a connection string. */
export const sessionOptions = (): string =>
  Object.entries(sessionSettings)
    .map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`)
    .join(' ');

/** As statements, for an engine that has one session and no connection string. */
export const sessionStatements = (): string[] =>
  Object.entries(sessionSettings).map(([name, value]) => `set ${name} = '${value}'`);
