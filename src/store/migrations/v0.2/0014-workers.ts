import { Migration } from '@mikro-orm/migrations';

/**
 * Adds the workers that servers know. The table is unlogged, because its rows live for half a minute and are
 * written again after a crash. The fillfactor leaves space for each row's next version, because rows are
 * rewritten and no indexed column changes.
 */
export class Workers extends Migration {
  override up(): void {
    this.addSql(`create unlogged table workers (
      worker_id text not null, server_id uuid not null, server_host text not null, server_pid int not null,
      peer text not null, work_streams int not null, heartbeat_streams int not null, waiting_calls int not null,
      since timestamptz not null, last_heard_at timestamptz not null,
      asks jsonb not null, asks_cut boolean not null, expires_at timestamptz not null,
      primary key (worker_id, server_id)
    ) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`);
  }

  override down(): void {
    this.addSql('drop table workers');
  }
}
