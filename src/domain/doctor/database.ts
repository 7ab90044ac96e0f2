import type { JsonObject } from '../jobs/job.ts';
import { span } from '../time.ts';
import type { DatabaseFacts, DiagnosisFacts, ServiceFacts, TableFacts, Thresholds } from './facts.ts';
import { clockFinding, type Finding, found, unread } from './finding.ts';
import { checkSessions, checkSlots } from './sessions.ts';
import { checkSettings } from './settings.ts';
import { bytes, whole } from './units.ts';

export function checkDatabase({ database, poolMax, nowMs }: DiagnosisFacts, limits: Thresholds): Finding[] {
  if ('failed' in database) {
    const advice = 'see whether it runs and can be reached; nothing can be served meanwhile';
    return [found('database', 'PROBLEM', `the database does not answer: ${database.failed}`, advice)];
  }
  return [
    ...checkEngine(database),
    ...(database.engine === 'embedded' ? [embedded] : checkSettings(database.settings)),
    clockFinding(database.clock, {
      area: 'database',
      code: 'clock_difference',
      ours: 'this server',
      theirs: 'the database',
    }),
    ...checkMigrations(database),
    ...checkTables(database.tables, nowMs),
    ...(database.engine === 'embedded' ? [] : checkSessions(database, poolMax, limits)),
    ...checkSlots(database, limits),
    ...checkService(database.service),
  ];
}

function checkEngine({
  version,
  versionNumber,
  isReadOnly,
  roundTripMs,
  databaseBytes,
  ...more
}: DatabaseFacts): Finding[] {
  const isOld = versionNumber < 140_000;
  const age = more.transactionAge;
  return [
    found(
      'database_version',
      isOld ? 'PROBLEM' : 'OK',
      `${more.engine} ${version}, ${bytes(databaseBytes)}`,
      'use PostgreSQL 14 or later',
      {
        version,
        engine: more.engine,
        database_bytes: databaseBytes,
      },
    ),
    found(
      'round_trip',
      roundTripMs > 100 ? 'WARN' : 'OK',
      `it answers in ${span(roundTripMs)}`,
      'every grant waits for some of these; see the network and the load of the database',
      { round_trip_ms: Math.round(roundTripMs * 10) / 10 },
    ),
    ...(isReadOnly
      ? [
          found(
            'read_only',
            'PROBLEM',
            'it is a standby, and nothing can be written',
            'point DATABASE_URL to the primary',
          ),
        ]
      : []),
    found(
      'transaction_age',
      age > 1_200_000_000 ? 'PROBLEM' : age > 500_000_000 ? 'WARN' : 'OK',
      `the oldest transaction that is not frozen is ${whole(age)} transactions old`,
      "vacuum the whole database ('vacuum freeze'): at some two thousand million it stops to protect itself",
      { transaction_age: age },
    ),
  ];
}

const embedded = found(
  'durability',
  'WARN',
  'the embedded database survives the end of its process at any moment, but does not wait for the disk: a power cut may lose the last writes',
  'use a PostgreSQL (DATABASE_URL) for what must not be lost',
  { fsync: 'off' },
);

function checkMigrations({ migrations, refusal }: DatabaseFacts): Finding[] {
  if (!migrations && refusal === null) return [unread('migrations', 'what has been migrated')];
  const { applied, known } = migrations ?? { applied: [], known: [] };
  const missing = known.filter((name) => !applied.includes(name));
  const newer = applied.filter((name) => !known.includes(name));
  const facts = { applied: [...applied], missing, newer };
  if (refusal !== null) {
    const advice = 'writes are refused and reads are answered; bring this server up to that version';
    return [found('migrations', 'PROBLEM', refusal, advice, migrations ? facts : {})];
  }
  if (missing.length > 0) {
    const text = `the schema lacks ${missing.join(', ')}`;
    return [found('migrations', 'PROBLEM', text, "run 'leasehold migrate'", facts)];
  }
  if (newer.length > 0) {
    const text = `the schema has ${newer.join(', ')}, which this server does not know`;
    return [
      found('migrations', 'WARN', text, 'a newer version has been here: bring all servers up to it', facts),
    ];
  }
  return [found('migrations', 'OK', `the schema is up to date: ${known.length} migrations`, null, facts)];
}

/** Dead rows worth a warning where they outnumber the live rows, and dead rows that are a problem. */
const deadMany = 50_000;
const deadTooMany = 1_000_000;
/** Index bytes per row worth a warning, for an index that is not small. */
const indexBytesPerRow = 2_000;
const indexBytesMin = 100 * 1024 * 1024;

function checkTables(tables: readonly TableFacts[] | null, nowMs: number): Finding[] {
  if (!tables) return [unread('tables', 'the sizes of the tables')];
  const findings = tables.flatMap((table) => {
    const { deadRows, liveRows, indexBytes } = table;
    const facts = factsOf(table);
    const vacuumed =
      table.vacuumedAtMs === null ? 'never vacuumed' : `vacuumed ${span(nowMs - table.vacuumedAtMs)} ago`;
    const tooMany = deadRows > deadMany && deadRows > liveRows;
    const level = tooMany && deadRows > deadTooMany ? 'PROBLEM' : 'WARN';
    const dead = `${table.table} has ${whole(deadRows)} dead rows beside ${whole(liveRows)} live ones, ${vacuumed}`;
    const swollen = indexBytes > indexBytesMin && indexBytes > indexBytesPerRow * (liveRows + deadRows);
    const index = `the indexes of ${table.table} take ${bytes(indexBytes)} for ${whole(liveRows)} rows`;
    return [
      ...(tooMany
        ? [
            found(
              'dead_rows',
              level,
              dead,
              `see what holds vacuuming back (below), then 'vacuum ${table.table}'`,
              facts,
            ),
          ]
        : []),
      ...(swollen
        ? [found('index_size', 'WARN', index, `'reindex table concurrently ${table.table}'`, facts)]
        : []),
    ];
  });
  if (findings.length > 0) return findings;
  const most = tables.toSorted((a, b) => b.deadRows - a.deadRows)[0];
  const words = most ? `; the most are ${whole(most.deadRows)} in ${most.table}` : '';
  return [found('dead_rows', 'OK', `dead rows are few${words}`, null, { tables: tables.map(factsOf) })];
}

const factsOf = ({
  table,
  liveRows,
  deadRows,
  vacuumedAtMs,
  tableBytes,
  indexBytes,
}: TableFacts): JsonObject => ({
  table,
  live_rows: liveRows,
  dead_rows: deadRows,
  last_vacuum: vacuumedAtMs === null ? null : new Date(vacuumedAtMs).toISOString(),
  table_bytes: tableBytes,
  index_bytes: indexBytes,
});

function checkService(service: ServiceFacts | null): Finding[] {
  if (!service) return [unread('reaper', 'how far the servers are')];
  const { overdueMs, pulseAgeMs, openOutages, usedUnits, leasedUnits } = service;
  const level = overdueMs > 60_000 ? 'PROBLEM' : overdueMs > 5_000 ? 'WARN' : 'OK';
  const late =
    level === 'OK'
      ? 'what is due is looked at in time'
      : `a job or lease that was due ${span(overdueMs)} ago has not been looked at`;
  const isMiscounted = usedUnits !== leasedUnits;
  return [
    found(
      'reaper',
      level,
      late,
      'see the logs of the servers for what their reapers say, and for what holds the row locked',
      {
        overdue_ms: Math.round(overdueMs),
        pulse_age_ms: pulseAgeMs === null ? null : Math.round(pulseAgeMs),
        open_outages: openOutages,
      },
    ),
    found(
      'capacity_count',
      isMiscounted ? 'WARN' : 'OK',
      isMiscounted
        ? `${whole(usedUnits)} units count as used, and active leases take ${whole(leasedUnits)}`
        : `${whole(usedUnits)} units are used, as active leases say`,
      'it is repaired within a minute; if it comes back, another program writes to the tables',
      { used: usedUnits, leased: leasedUnits },
    ),
  ];
}
