/** The names of the spans of statements. */
import { expect } from 'chai';
import { statementName } from '../../src/telemetry/statement-names.ts';

describe('the name of a statement', () => {
  const names = (text: string) => statementName(text).name;

  it('names a statement by its operation and its table (4)', () => {
    expect(names('select * from jobs where job_id = $1')).to.equal('SELECT jobs');
    expect(names('  insert into "workers" ("a") values ($1)')).to.equal('INSERT workers');
    expect(names('update capacity set used = 1')).to.equal('UPDATE capacity');
    expect(names('delete from outages where true')).to.equal('DELETE outages');
    expect(names('set transaction isolation level repeatable read')).to.equal('SET');
    expect(names('select 1')).to.equal('SELECT');
  });

  it('names the table of the main part of a statement, and never a CTE', () => {
    const parts = `with recursive wanted (n) as (select 1), locked as materialized (select * from wanted)
      insert into job_events select * from locked`;
    expect(names(parts)).to.equal('INSERT job_events');
    expect(names('with a as (select * from live_jobs for update skip locked) select * from a')).to.equal(
      'SELECT live_jobs',
    );
  });

  it('computes the name once per text, and includes no value', () => {
    const text = "select * from jobs where note = 'secret'";
    expect(statementName(text)).to.equal(statementName(text));
    expect(JSON.stringify(statementName(text))).to.not.include('secret');
  });
});
