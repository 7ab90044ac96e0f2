import { expect } from 'chai';
import type { Kysely } from 'kysely';
import { type EmbeddedDatabase, openEmbedded } from '../../../src/store/embedded/client.ts';
import {
  type Connection,
  connect,
  rejection,
  rowsOf,
  temporaryDirectory,
} from '../../support/embedded-database.ts';

/** SQL, its parameters, and the value both engines must give for the column `v`. */
const VALUES: [sql: string, parameters: unknown[], expected: unknown][] = [
  [`'2030-01-02 03:04:05.678901+00'::timestamptz`, [], '2030-01-02 03:04:05.678901+00'],
  [`'2030-01-02 03:04:05.678901'::timestamp`, [], '2030-01-02 03:04:05.678901'],
  [`'2030-01-02'::date`, [], '2030-01-02'],
  [`'1 day 02:03:04'::interval`, [], '1 day 02:03:04'],
  [`'infinity'::timestamptz`, [], 'infinity'],
  [`'{"a": [1, null, "ü"]}'::jsonb`, [], { a: [1, null, 'ü'] }],
  [`'[1, {"b": false}]'::json`, [], [1, { b: false }]],
  [`'null'::jsonb`, [], null],
  ['9007199254740993::int8', [], '9007199254740993'],
  ['count(*)', [], '1'],
  ['42::int4', [], 42],
  ['7::int2', [], 7],
  ['1.50::numeric', [], '1.50'],
  ['1.5::float8', [], 1.5],
  ['1.5::float4', [], 1.5],
  [`'NaN'::float8`, [], Number.NaN],
  ['true', [], true],
  ['null::boolean', [], null],
  [`'00000000-0000-4000-8000-000000000000'::uuid`, [], '00000000-0000-4000-8000-000000000000'],
  [`decode('00ff10', 'hex')`, [], Buffer.from([0, 255, 16])],
  ['array[1, null, 3]::int[]', [], [1, null, 3]],
  [
    `array['a', null, '', 'NULL', 'with "quotes", {braces} \\ and ü']`,
    [],
    ['a', null, '', 'NULL', 'with "quotes", {braces} \\ and ü'],
  ],
  [`'{}'::text[]`, [], []],
  ['array[true, false]', [], [true, false]],
  [`void_or_text('')`, [], ''],
  ['$1::text', ['😀 ü \u0001 \n "quoted" \\'], '😀 ü \u0001 \n "quoted" \\'],
  ['$1::text', [''], ''],
  ['$1::text', [null], null],
  ['$1::text', [undefined], null],
  ['$1::int', [12], 12],
  ['$1::int8', [9007199254740991], '9007199254740991'],
  ['$1::int8', [9007199254740993n], '9007199254740993'],
  ['$1::float8', [0.1], 0.1],
  ['$1::boolean', [false], false],
  ['$1::timestamptz', [new Date('2030-01-02T03:04:05.678Z')], '2030-01-02 03:04:05.678+00'],
  ['$1::jsonb', [JSON.stringify({ a: ['😀', 1] })], { a: ['😀', 1] }],
  ['$1::jsonb', [{ b: true }], { b: true }],
  ['$1::text[]', [['a', null, '"', '\\', '{x,y}', '', 'NULL']], ['a', null, '"', '\\', '{x,y}', '', 'NULL']],
  ['$1::int[]', [[1, null, 3]], [1, null, 3]],
  ['$1::int[]', [[]], []],
  ['$1::boolean[]', [[true, null]], [true, null]],
  ['$1::float8[]', [[0.5, 2]], [0.5, 2]],
  ['($1::jsonb[])[2]', [['{"a":1}', '{"b":"\\"x\\""}']], { b: '"x"' }],
  ['$1::bytea', [Buffer.from([1, 0, 255])], Buffer.from([1, 0, 255])],
];

/** Statements that fail, and the expected properties of the error. */
const ERRORS: [sql: string, parameters: unknown[], expected: Record<string, unknown>][] = [
  ['select 1 / $1::int', [0], { code: '22012', message: 'division by zero', severity: 'ERROR' }],
  [
    'select * from nowhere',
    [],
    { code: '42P01', message: 'relation "nowhere" does not exist', position: '15' },
  ],
  [
    'insert into probe values (1, 1)',
    [],
    {
      code: '23505',
      constraint: 'probe_pkey',
      table: 'probe',
      schema: 'public',
      detail: 'Key (id)=(1) already exists.',
    },
  ],
  ['insert into probe values (2, -1)', [], { code: '23514', constraint: 'probe_positive' }],
  ['insert into probe values (3, null)', [], { code: '23502', column: 'value' }],
  ['select $1::int', ['x'], { code: '22P02', message: 'invalid input syntax for type integer: "x"' }],
  ['selec 1', [], { code: '42601' }],
];

const server = process.env.TEST_DATABASE_URL;

for (const engine of server ? ['embedded', 'server'] : ['embedded']) {
  describe(`values and errors of the ${engine} database`, function () {
    this.timeout(10_000);
    const place = temporaryDirectory();
    let database: EmbeddedDatabase | undefined;
    let connection: Connection;
    let kysely: Kysely<unknown>;

    before(async () => {
      if (engine === 'embedded') database = await openEmbedded(place.dir);
      connection = await connect(database?.ormOptions ?? { clientUrl: server });
      kysely = connection.kysely;
      await rowsOf(kysely, `set timezone = 'UTC'`);
      await rowsOf(
        kysely,
        'create table probe (id int primary key, value int not null constraint probe_positive check (value > 0))',
      );
      await rowsOf(kysely, 'insert into probe values (1, 1)');
      await rowsOf(kysely, `create function void_or_text(text) returns text language sql return $1`);
    });

    after(async () => {
      await rowsOf(kysely, 'drop table probe; drop function void_or_text');
      await connection.close();
      await database?.close();
      place.remove();
    });

    for (const [sql, parameters, expected] of VALUES) {
      it(`returns ${JSON.stringify(expected) ?? String(expected)} for ${sql} of ${parameters.map(String)}`, async () => {
        const [row] = await rowsOf(kysely, `select ${sql} as v`, parameters);
        expect(row?.v).to.deep.equal(expected);
      });
    }

    for (const [sql, parameters, expected] of ERRORS) {
      it(`reports ${expected.code} for ${sql}`, async () => {
        const error = await rejection(rowsOf(kysely, sql, parameters));
        expect(error).to.include(expected);
        expect(await rowsOf(kysely, 'select 1 as one')).to.deep.equal([{ one: 1 }]);
      });
    }

    it('counts the rows that a statement changed', async () => {
      const { numUpdatedRows } = await (kysely as Kysely<{ probe: { id: number; value: number } }>)
        .updateTable('probe')
        .set({ value: 5 })
        .executeTakeFirstOrThrow();
      expect(numUpdatedRows).to.equal(1n);
    });

    it('transfers a megabyte and a thousand rows in either direction', async () => {
      const text = 'ü'.repeat(1024 * 1024);
      expect((await rowsOf(kysely, 'select $1::text as v', [text]))[0]?.v).to.equal(text);
      const rows = await rowsOf(kysely, 'select n, repeat($1, 1000) as v from generate_series(1, 1000) n', [
        'x',
      ]);
      expect(rows).to.have.length(1000);
      expect(rows[999]).to.deep.equal({ n: 1000, v: 'x'.repeat(1000) });
    });

    it('streams rows through a cursor', async () => {
      const query = (kysely as Kysely<{ pg_class: { relname: string } }>)
        .selectFrom('pg_class')
        .select('relname')
        .limit(25);
      const seen: unknown[] = [];
      for await (const row of query.stream(10)) seen.push(row);
      expect(seen).to.have.length(25);
    });
  });
}
