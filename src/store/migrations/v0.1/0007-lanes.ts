import { Migration } from '@mikro-orm/migrations';

/** The lanes of a stream in their order, so that a claim can leap from one to the next. */
export class Lanes extends Migration {
  override up(): void {
    this.addSql('create index lanes_stream_lane on lanes (stream, lane_id)');
    this.addSql('drop index lanes_stream');
  }

  override down(): void {
    this.addSql('create index lanes_stream on lanes (stream)');
    this.addSql('drop index lanes_stream_lane');
  }
}
