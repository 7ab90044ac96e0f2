import { expect } from 'chai';
import { diagnose } from '../../../src/domain/doctor/doctor.ts';
import type {
  DatabaseFacts,
  DiagnosisFacts,
  QueueFacts,
  QueueHead,
  RedisFacts,
} from '../../../src/domain/doctor/facts.ts';
import { type KnownRequest, suits } from '../../../src/domain/workers/known-requests.ts';

const gib = 1024 ** 3;
const hourMs = 3_600_000;

const head: QueueHead = {
  jobId: 'j1',
  jobType: 'train',
  addonId: 'visuals',
  stream: null,
  requires: [],
  heavy: [],
  costUnits: 1,
  readyMs: 60_000,
};
const ask: KnownRequest = {
  streams: null,
  addonId: null,
  jobTypes: null,
  maxCostUnits: null,
  available: [],
  refused: [],
  isCut: false,
};
const queue: QueueFacts = {
  capacity: { total: 100, busyRating: 0, usable: 100, used: 5, available: 95, reserved: 0 },
  heads: [head],
  headsCut: false,
  oldestCauses: [],
  asks: [ask],
  tooCostly: 0,
  firstTooCostly: null,
  deadLetters: [],
  silent: [],
};
const silentLease = { leaseId: 'l1', jobId: 'j1', workerId: 'w1', silentMs: 50_000, ttlS: 60 };

const database: DatabaseFacts = {
  engine: 'postgresql',
  version: '16.2',
  versionNumber: 160_002,
  isReadOnly: false,
  settings: {
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    autovacuum: 'on',
    track_counts: 'on',
    default_transaction_isolation: 'read committed',
    max_connections: '100',
    superuser_reserved_connections: '3',
    shared_buffers_bytes: String(gib),
  },
  clock: { aheadMs: 3, uncertainMs: 1 },
  roundTripMs: 1,
  databaseBytes: gib,
  transactionAge: 1_000_000,
  refusal: null,
  migrations: { applied: ['a', 'b'], known: ['a', 'b'] },
  tables: [
    {
      table: 'live_jobs',
      liveRows: 1_000_000,
      deadRows: 60_000,
      vacuumedAtMs: 0,
      tableBytes: gib,
      indexBytes: gib,
    },
  ],
  sessions: {
    oldest: [{ pid: 7, application: 'leasehold', user: 'u', state: 'active', openMs: 20 }],
    hidden: 0,
    connections: 20,
    own: 11,
  },
  slots: [{ name: 'standby', isActive: true, xminAge: null, keptBytes: 5 * gib }],
  prepared: [],
  service: { pulseAgeMs: 500, overdueMs: 30, openOutages: 0, usedUnits: 5, leasedUnits: 5 },
  queue,
  keys: [],
};
const redis: RedisFacts = {
  version: '7.2.4',
  usedBytes: 100,
  maxBytes: 1_000,
  policy: 'noeviction',
  savesSnapshots: true,
  appendsLog: false,
  lastSaveFailed: false,
};
const sound: DiagnosisFacts = {
  nowMs: hourMs,
  version: '1.0.0',
  upMs: 5_000,
  poolMax: 10,
  node: '24.21.0',
  access: {
    posture: { isReachable: true, auth: ['keys'], hasTls: true },
    certificate: null,
    usesKeys: false,
  },
  database,
  redis,
};

const levelsWith = (more: Partial<DatabaseFacts>, settings: Record<string, string> = {}) => {
  const facts = { ...database, ...more, settings: { ...database.settings, ...settings } };
  const { findings, level } = diagnose({ ...sound, database: facts });
  const wrong = findings.filter((each) => each.level !== 'OK');
  return {
    level,
    wrong: wrong.map((each) => `${each.level} ${each.code}`),
    texts: wrong.map(({ text }) => text),
  };
};
const [table] = database.tables ?? [];
const [slot] = database.slots ?? [];
const [session] = database.sessions?.oldest ?? [];

describe('the diagnosis', () => {
  it('reports OK if every fact is good', () => {
    const { findings, level } = diagnose(sound);
    expect(findings.filter((each) => each.level !== 'OK')).to.deep.equal([]);
    expect(level).to.equal('OK');
    for (const { text, advice } of findings) {
      expect(text).not.to.match(/undefined|null|NaN/);
      expect(advice).to.equal(null);
    }
  });

  const cases: [string, Partial<DatabaseFacts>, Record<string, string>, string[]][] = [
    ['what is not flushed', {}, { fsync: 'off' }, ['PROBLEM fsync']],
    ['torn pages', {}, { full_page_writes: 'off' }, ['PROBLEM full_page_writes']],
    ['commits that nobody waits for', {}, { synchronous_commit: 'off' }, ['PROBLEM synchronous_commit']],
    ['commits that are flushed here alone', {}, { synchronous_commit: 'local' }, []],
    ['no vacuuming', {}, { autovacuum: 'off' }, ['PROBLEM autovacuum']],
    ['no counting', {}, { track_counts: 'off' }, ['PROBLEM track_counts']],
    [
      'a pooler that overrides the isolation',
      {},
      { default_transaction_isolation: 'serializable' },
      ['PROBLEM default_transaction_isolation'],
    ],
    ['little memory', {}, { shared_buffers_bytes: '1000000' }, ['WARN shared_buffers']],
    ['too few connections for one server', {}, { max_connections: '15' }, ['PROBLEM connections']],
    ['hardly any connection left', {}, { max_connections: '24' }, ['WARN connections']],
    ['an old version', { versionNumber: 130_010 }, {}, ['PROBLEM database_version']],
    ['a standby', { isReadOnly: true }, {}, ['PROBLEM read_only']],
    ['a slow network', { roundTripMs: 150 }, {}, ['WARN round_trip']],
    ['rows that should be frozen', { transactionAge: 600_000_000 }, {}, ['WARN transaction_age']],
    ['a wraparound to come', { transactionAge: 1_500_000_000 }, {}, ['PROBLEM transaction_age']],
    ['clocks that differ', { clock: { aheadMs: -10_000, uncertainMs: 5 } }, {}, ['WARN clock_difference']],
    ['clocks of which nothing is sure', { clock: { aheadMs: 3_000, uncertainMs: 1_500 } }, {}, []],
    [
      'a missing migration',
      { migrations: { applied: ['a'], known: ['a', 'b'] } },
      {},
      ['PROBLEM migrations'],
    ],
    ['a schema that is too new to write', { refusal: 'schema too new: z' }, {}, ['PROBLEM migrations']],
    ['a newer schema', { migrations: { applied: ['a', 'z'], known: ['a'] } }, {}, ['WARN migrations']],
    [
      'an overdue reaper',
      { service: { ...database.service, overdueMs: 10_000 } as never },
      {},
      ['WARN reaper'],
    ],
    [
      'a reaper that is stuck',
      { service: { ...database.service, overdueMs: 90_000 } as never },
      {},
      ['PROBLEM reaper'],
    ],
    [
      'dead rows',
      { tables: [{ ...table, liveRows: 10, deadRows: 60_000 } as never] },
      {},
      ['WARN dead_rows', 'WARN index_size'],
    ],
    [
      'dead rows without end',
      { tables: [{ ...table, liveRows: 10, deadRows: 2_000_000 } as never] },
      {},
      ['PROBLEM dead_rows'],
    ],
    [
      'an old transaction',
      { sessions: { ...database.sessions, oldest: [{ ...session, openMs: 6 * 60_000 }] } as never },
      {},
      ['WARN oldest_transaction'],
    ],
    [
      'a very old one',
      { sessions: { ...database.sessions, oldest: [{ ...session, openMs: 2 * hourMs }] } as never },
      {},
      ['PROBLEM oldest_transaction'],
    ],
    [
      'a slot that nobody reads',
      { slots: [{ ...slot, isActive: false, keptBytes: 5 } as never] },
      {},
      ['WARN replication_slots'],
    ],
    [
      'a slot that fills the disk',
      { slots: [{ ...slot, isActive: false } as never] },
      {},
      ['PROBLEM replication_slots'],
    ],
    ['a prepared transaction', { prepared: [{ gid: 'x', openMs: 5 }] }, {}, ['WARN prepared_transactions']],
    [
      'an old prepared transaction',
      { prepared: [{ gid: 'x', openMs: 2 * hourMs }] },
      {},
      ['PROBLEM prepared_transactions'],
    ],
    [
      'what could not be read',
      { migrations: null, tables: null, sessions: null, slots: null, service: null, queue: null },
      {},
      [
        'WARN migrations',
        'WARN tables',
        'WARN connections',
        'WARN replication_slots',
        'WARN reaper',
        'WARN queue',
      ],
    ],
    [
      'an embedded database',
      { engine: 'embedded' },
      { fsync: 'off', max_connections: '1' },
      ['WARN durability'],
    ],
  ];
  for (const [what, facts, settings, expected] of cases) {
    it(`reports the expected findings for ${what}`, () => {
      const { wrong, level, texts } = levelsWith(facts, settings);
      expect(wrong, texts.join('\n')).to.deep.equal(expected);
      const worst = expected.some((each) => each.startsWith('PROBLEM'))
        ? 'PROBLEM'
        : expected.length > 0
          ? 'WARN'
          : 'OK';
      expect(level).to.equal(worst);
      for (const text of texts) expect(text).not.to.match(/undefined|NaN/);
    });
  }

  const noUnits = { ...queue.capacity, busyRating: 10, usable: 0 };
  const queueCases: [string, Partial<QueueFacts>, string[]][] = [
    ['no usable unit while jobs wait', { capacity: noUnits }, ['PROBLEM usable_capacity']],
    ['no usable unit of an empty queue', { capacity: noUnits, heads: [] }, ['WARN usable_capacity']],
    ['a job that has been ready for long', { heads: [{ ...head, readyMs: hourMs }] }, ['WARN oldest_ready']],
    ['a type without a worker', { asks: [{ ...ask, jobTypes: ['resize'] }] }, ['WARN types_without_worker']],
    ['a type without any worker', { asks: [] }, ['WARN types_without_worker']],
    ['a type whose worker may be about to ask', { asks: [], heads: [{ ...head, readyMs: 20_000 }] }, []],
    [
      'a capability without a worker',
      { heads: [{ ...head, requires: ['gpu'] }] },
      ['WARN capability_without_worker'],
    ],
    ['a stream without a worker', { heads: [{ ...head, stream: 's' }] }, ['WARN types_without_worker']],
    ['jobs that were put aside', { tooCostly: 3, firstTooCostly: head }, ['WARN costs_more_than_total']],
    [
      'a job that is about to be put aside',
      { heads: [{ ...head, costUnits: 101 }] },
      ['WARN costs_more_than_total'],
    ],
    ['dead letters', { deadLetters: [{ stream: 's', jobs: 1 }] }, ['WARN dead_letters']],
    ['silent leases', { silent: [silentLease] }, ['WARN silent_leases']],
  ];
  for (const [what, facts, expected] of queueCases) {
    it(`reports the expected findings for ${what} (A4)`, () => {
      const { wrong, texts } = levelsWith({ queue: { ...queue, ...facts } });
      expect(wrong, texts.join('\n')).to.deep.equal(expected);
      for (const text of texts) expect(text).not.to.match(/undefined|NaN|null/);
    });
  }

  it('names the oldest job with its type and cause, and each kind of job once (A4)', () => {
    const heads = [head, { ...head, jobId: 'j2', readyMs: hourMs }, { ...head, jobId: 'j3', stream: 's' }];
    const cause = { code: 'waiting_for_worker', text: 'it is next', sinceMs: null, untilMs: null, facts: {} };
    const facts = { ...queue, heads, asks: [], oldestCauses: [cause as never] };
    const { findings } = diagnose({ ...sound, database: { ...database, queue: facts } });
    const textOf = (code: string) => findings.find((each) => each.code === code)?.text;
    expect(textOf('oldest_ready')).to.equal('the oldest ready job is j2 (train), ready for 1 h: it is next');
    expect(textOf('types_without_worker')).to.equal(
      'jobs are ready that no known worker asks for: train, ready for 1 h, train of stream s, ready for 1 min',
    );
  });

  it('omits counts per stream if dead letters exceed the maximum that it counts (A4)', () => {
    const textWith = (jobs: number) =>
      diagnose({
        ...sound,
        database: { ...database, queue: { ...queue, deadLetters: [{ stream: 's', jobs }] } },
      }).findings.find(({ code }) => code === 'dead_letters')?.text;
    expect(textWith(10_000)).to.equal('streams gave up 10,000 jobs: 10,000 in s');
    expect(textWith(10_001)).to.equal('streams gave up more than 10,000 jobs, first of all s');
  });

  it('matches jobs to requests by type, stream, addon, capabilities and cost', () => {
    const fits = (more: Partial<KnownRequest>, job: Partial<QueueHead> = {}) =>
      suits({ ...ask, ...more }, { ...head, ...job });
    expect(fits({})).to.equal(true);
    expect([fits({ streams: ['s'] }), fits({ streams: ['s'] }, { stream: 's' })]).to.deep.equal([
      false,
      true,
    ]);
    expect([fits({}, { stream: 's' }), fits({ streams: ['t'] }, { stream: 's' })]).to.deep.equal([
      false,
      false,
    ]);
    expect([fits({ jobTypes: ['train'] }), fits({ jobTypes: ['x'] })]).to.deep.equal([true, false]);
    expect([fits({ addonId: 'visuals' }), fits({ addonId: 'x' })]).to.deep.equal([true, false]);
    expect([fits({ maxCostUnits: 1 }), fits({ maxCostUnits: 0 })]).to.deep.equal([true, false]);
    const gpu = { requires: ['gpu'] };
    expect([fits({ available: ['gpu', 'x'] }, gpu), fits({ available: ['x'] }, gpu)]).to.deep.equal([
      true,
      false,
    ]);
    const heavy = { heavy: ['cpu'] };
    expect([fits({}, heavy), fits({ refused: ['cpu'] }, heavy)]).to.deep.equal([true, false]);
    expect(fits({ jobTypes: ['x'], isCut: true })).to.equal(true);
  });

  it('checks Redis by version, eviction policy, memory and persistence', () => {
    const codes = (more: Partial<RedisFacts>) =>
      diagnose({ ...sound, redis: { ...redis, ...more } })
        .findings.filter(({ level }) => level !== 'OK')
        .map(({ code, level }) => `${level} ${code}`);
    expect(codes({})).to.deep.equal([]);
    expect(codes({ version: '6.0.9' })).to.deep.equal(['PROBLEM redis_version']);
    expect(codes({ version: '6.2.0', policy: 'volatile-lru' })).to.deep.equal([]);
    expect(codes({ policy: 'allkeys-random' })).to.deep.equal(['PROBLEM redis_maxmemory_policy']);
    expect(codes({ usedBytes: 950 })).to.deep.equal(['WARN redis_memory']);
    expect(codes({ lastSaveFailed: true })).to.deep.equal(['WARN redis_persistence']);
    const judged = (isForeign: boolean) => {
      const { findings, level } = diagnose({ ...sound, redis: { failed: 'gone', isForeign } });
      expect(level).to.equal('PROBLEM');
      return findings.find(({ code }) => code === 'redis');
    };
    expect(judged(false)?.advice).to.include('see why it does not answer');
    // A Redis of another database never becomes usable, so the advice is to name another one.
    expect(judged(true)?.text).to.match(/^Redis is not used: gone; /);
    expect(judged(true)?.advice).to.match(/^name a Redis, /);
    expect(diagnose({ ...sound, redis: null }).level).to.equal('OK');
  });

  it('reports only the missing answer of a database that does not respond', () => {
    const { findings, level } = diagnose({ ...sound, redis: null, database: { failed: 'nothing came' } });
    const codes = ['server_version', 'node_version', 'posture', 'database', 'redis'];
    expect(findings.map(({ code }) => code)).to.deep.equal(codes);
    expect(level).to.equal('PROBLEM');
  });
});
