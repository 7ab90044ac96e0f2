import { Migration } from '@mikro-orm/migrations';

/** Indexes the lanes of a crowd, so that a path of requirements is removed only if no lane is at its end. */
export class LanesOfCrowds extends Migration {
  override up(): void {
    this.addSql("set local statement_timeout = '0'");
    this.addSql('create index lanes_crowd on lanes (crowd) where crowd is not null');
  }

  override down(): void {
    this.addSql('drop index lanes_crowd');
  }
}
