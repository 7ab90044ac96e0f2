/**
 * The views that the queue contract recommends, with the contract's names. They serve people and their tools,
 * whose sessions have settings of their own. The server itself finds single jobs and leases by primary keys.
 *
 * A view depends on its tables themselves, not on their names. A migration that replaces such a table
 * therefore drops the views first and creates them again. Any other migration uses `create or replace`,
 * because users have built views on them and granted access to them. The latest migration that names a view
 * has its text.
 */
export const contractViewNames = ['scheduler_job_runs', 'scheduler_lease_runs', 'scheduler_events'] as const;
