import { Migration } from '@mikro-orm/migrations';

/** Adds the sessions of browsers. Servers look a session up by the hash of its id. */
export class Sessions extends Migration {
  override up(): void {
    this.addSql(`create table sessions (
      session_hash text primary key,
      principal_id text not null,
      identity jsonb,
      created_at timestamptz not null,
      created_from text not null,
      expires_at timestamptz not null,
      last_used_at timestamptz not null
    )`);
    this.addSql('create index sessions_principal_id on sessions (principal_id, created_at)');
  }

  override down(): void {
    this.addSql('drop table sessions');
  }
}
