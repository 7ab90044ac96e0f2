import { Migration } from '@mikro-orm/migrations';

/**
 * Makes the audit append-only, and adds the method of each call and the number of refusals that one event
 * stands for. Only the pruner deletes, and only what is older than a day. The owner of the tables can drop
 * the triggers; nothing in a database can prevent that.
 */
export class Audit extends Migration {
  override up(): void {
    this.addSql(
      'alter table audit_events add column method text, add column left_out int not null default 0',
    );
    // An address that a key was used from is recorded once, by whichever server sees it first.
    this.addSql(`create unique index audit_events_addresses on audit_events (principal_id, peer)
      where action = 'keys.new_address'`);
    this.addSql('create index audit_events_action on audit_events (action, audit_id)');
    this.addSql('create index audit_events_principal on audit_events (principal_id, audit_id)');
    this.addSql(`create function refuse_audit_change() returns trigger language plpgsql as $$
  begin
    if tg_op = 'DELETE' then
      if old.at < clock_timestamp() - interval '1 day'
        and current_setting('leasehold.prunes_audit', true) = 'on' then
        return old;
      end if;
    end if;
    raise exception 'audit_events is append-only: % is refused', lower(tg_op)
      using errcode = 'insufficient_privilege';
  end
$$`);
    this.addSql(`create trigger audit_events_no_change before update or truncate on audit_events
      for each statement execute function refuse_audit_change()`);
    this.addSql(`create trigger audit_events_no_delete before delete on audit_events
      for each row execute function refuse_audit_change()`);
  }

  override down(): void {
    this.addSql('drop trigger audit_events_no_delete on audit_events');
    this.addSql('drop trigger audit_events_no_change on audit_events');
    this.addSql('drop function refuse_audit_change()');
    this.addSql('drop index audit_events_principal');
    this.addSql('drop index audit_events_action');
    this.addSql('drop index audit_events_addresses');
    this.addSql('alter table audit_events drop column left_out, drop column method');
  }
}
