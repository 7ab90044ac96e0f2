import { expect } from 'chai';
import fc from 'fast-check';
import { timeMs } from '../../../src/store/connection/sql.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';

describe('timeMs', () => {
  const first = Date.parse('0001-01-01T00:00:00Z');
  const last = Date.parse('9999-12-31T23:59:59.999Z');

  it('reads a time to the millisecond, with as many digits as PostgreSQL writes', () => {
    fc.assert(
      fc.property(fc.integer({ min: first, max: last }), fc.nat(999), (ms, micros) => {
        const iso = new Date(ms).toISOString();
        const digits = `${iso.slice(20, 23)}${String(micros).padStart(3, '0')}`.replace(/0+$/, '');
        const text = `${iso.slice(0, 10)} ${iso.slice(11, 19)}${digits === '' ? '' : `.${digits}`}+00`;
        expect(timeMs(text), text).to.equal(ms);
      }),
    );
  });

  it('accepts null and the Date of an entity', () => {
    expect(timeMs(null)).to.equal(null);
    expect(timeMs(new Date(5))).to.equal(5);
  });

  onEveryEngine((kind) => {
    let store: TestDatabase;
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());

    it('reads a time as the database means it', async () => {
      const seconds = [
        0, 1_700_000_000, 1_700_000_000.5, 1_700_000_000.123456, 951_782_399.999, 253_402_300_799,
      ];
      const rows = await store.database.query<{ at: string }>(
        'select to_timestamp(s)::timestamptz as at from unnest($1::float8[]) with ordinality as one (s, n) order by n',
        [`{${seconds.join(',')}}`],
      );
      expect(rows.map(({ at }) => timeMs(at))).to.deep.equal(seconds.map((s) => Math.floor(s * 1000)));
    });
  });
});
