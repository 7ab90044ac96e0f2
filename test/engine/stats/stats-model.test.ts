/**
 * Compares the statistics with a recount. After random histories they equal the rows of jobs, leases and
 * events, whether or not tallies are aggregated by then.
 */
import { expect } from 'chai';
import fc from 'fast-check';
import { eventNumber, stateNumber } from '../../../src/domain/jobs/state-machine.ts';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import {
  emptyHistogram,
  type MetricName,
  metricNames,
  percentile,
  type Snapshot,
  slotGrowth,
} from '../../../src/domain/stats/series.ts';
import type { Sql } from '../../../src/store/connection/sql.ts';
import { aggregateTallies } from '../../../src/store/sql/stats/aggregate.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { allEvents, endedLeases } from '../../support/history.ts';
import {
  caller,
  engineOn,
  engineSettings,
  letTimePass,
  submitted,
  type TestedEngine,
} from '../../support/jobs.ts';
import { acquire, codeOf, releaseFor } from '../../support/lease-helpers.ts';

const seed = Number(process.env.LEASEHOLD_TEST_MODEL_SEED || 20_260_101);
const addons = ['ann', 'bob', 'cid'] as const;
const rounds = 8;
const opsPerRound = 22;
const settings = { ...engineSettings, maxClaims: 2 };

type Op = readonly [name: string, a: number, b: number];

const op = fc.tuple(
  fc.constantFrom(
    'submit',
    'submit',
    'claim',
    'status',
    'request',
    'acquire',
    'acquire',
    'release',
    'release',
    'cancel',
    'retry',
    'pass',
    'wait',
  ),
  fc.nat(1_000),
  fc.nat(1_000),
);

interface World {
  engine: TestedEngine;
  jobIds: string[];
  grants: Grant[];
}

const at = <T>(list: readonly T[], i: number): T | undefined => list[list.length - 1 - (i % list.length)];

/** Runs one step. A step that is not allowed changes nothing, and is part of the history all the same. */
async function step({ engine, jobIds, grants }: World, [name, a, b]: Op): Promise<void> {
  const { database } = engine.services;
  const addon_id = addons[a % addons.length] as string;
  const jobId = at(jobIds, a) ?? '';
  const remember = (grant: Grant | { kind: 'denied' }) => {
    if (grant.kind === 'granted') grants.push(grant);
  };
  if (name === 'submit') {
    const jobs = Array.from({ length: 1 + (a % 4) }, (_, i) => ({
      addon_id: addons[(a + (b % 3) * i) % addons.length] as string,
      job_type: `t${b % 2}`,
      cost_units: 1 + (b % 9),
      max_attempts: 1 + (b % 3),
      retry_backoff_s: b % 4 === 0 ? 30 : 0,
    }));
    jobIds.push(...(await submitted(engine, ...jobs)).map((job) => job.jobId));
  } else if (name === 'claim') {
    await engine.jobs.claim({ worker_id: 'w', limit: 1 + (b % 3) }, caller);
  } else if (name === 'status') {
    const state = b % 3 === 0 ? 'QUEUED' : b % 3 === 1 ? 'PREPARING' : 'LEASE_PENDING';
    await codeOf(engine.jobs.updateStatus(jobId, { state }, caller));
  } else if (name === 'request') {
    for (const job_id of jobIds.slice(-12)) {
      const asked = engine.leases.request({ job_id }, caller);
      await codeOf(asked.then(remember));
    }
  } else if (name === 'acquire') {
    const asks = Array.from({ length: 1 + (b % 3) }, () =>
      acquire(engine, 'w', a % 2 === 0 ? { addon_id } : {}),
    );
    for (const outcome of await Promise.all(asks)) remember(outcome);
  } else if (name === 'release') {
    const status = (['SUCCEEDED', 'FAILED', 'FAILED', 'CANCELED', 'TIMEOUT'] as const)[b % 5] ?? 'FAILED';
    const handedIn = grants
      .slice(-1 - (a % 3))
      .map((one) => releaseFor(one, { status, retryable: a % 2 === 0 }));
    await Promise.all(handedIn.map((one) => codeOf(engine.leases.release(one, caller))));
  } else if (name === 'cancel') await codeOf(engine.jobs.cancel(jobId, {}, caller));
  else if (name === 'retry') {
    // A randomly picked job has rarely failed.
    const [failed] = await database.query<{ job_id: string }>(
      'select job_id from job_outcomes where state = $1 order by job_id limit 1',
      [stateNumber('FAILED')],
    );
    for (const one of [jobId, failed?.job_id ?? '']) await codeOf(engine.jobs.retry(one, {}, caller));
  } else if (name === 'wait') {
    // As if the queued jobs had waited for longer, from a moment to some days.
    const seconds = 1.5 ** (b % 32);
    await database.query(
      "update live_jobs set ready_at = ready_at - $1::float8 * interval '1 s' where lease_token is null",
      [seconds],
    );
  } else {
    await letTimePass(database, 30_000 + (b % 3) * 40_000);
    await engine.services.reaper.runOnce();
  }
}

/** The figures counted from rows, for each submitter and for all. */
interface Recount {
  gauges: Record<string, Record<string, number>>;
  counters: Record<string, Record<string, number>>;
  runs: Record<string, number[]>;
  /** Jobs that are FAILED, all of them by failures of the last minutes. */
  failedNow: Record<string, number>;
}

const counted: Partial<Record<MetricName, number>> = {
  jobs_submitted: eventNumber('JOB_SUBMITTED'),
  jobs_done: eventNumber('JOB_DONE'),
  jobs_failed: eventNumber('JOB_FAILED'),
  jobs_canceled: eventNumber('JOB_CANCELED'),
  jobs_timeout: eventNumber('JOB_TIMEOUT'),
  leases_granted: eventNumber('LEASE_GRANTED'),
  leases_expired: eventNumber('LEASE_EXPIRED'),
};

const gaugeNames = [
  'jobs_queued',
  'jobs_claimed',
  'jobs_running',
  'leases_active',
  'capacity_used',
  'reserved',
];

const endings = (['LEASE_RELEASED', 'LEASE_EXPIRED'] as const).map(eventNumber);

async function recount(sql: Sql, afterEvent: string): Promise<Recount> {
  const live = await sql.query<{ addon: string; state: number; n: number; units: number }>(
    `select addon_id as addon, live.state, count(*)::int as n, sum(live.cost_units)::int as units
    from live_jobs live join jobs on jobs.job_id = live.job_id group by 1, 2`,
    [],
  );
  const events = await sql.query<{ addon: string; type: number; n: number }>(
    `select addon_id as addon, type, count(*)::int as n from ${allEvents} join jobs on jobs.job_id = all_events.job_id
    where event_id > $1 group by 1, 2`,
    [afterEvent],
  );
  const leases = await sql.query<{ addon: string; ms: number }>(
    `select addon_id as addon, extract(epoch from ended_at - granted_at)::float8 * 1000 as ms
    from ${allEvents} join ${endedLeases} on ended_leases.lease_id = all_events.lease_id
    join jobs on jobs.job_id = ended_leases.job_id
    where event_id > $1 and type = any ('{${endings.join(',')}}'::smallint[])`,
    [afterEvent],
  );
  const failed = await sql.query<{ addon: string; n: number }>(
    `select addon_id as addon, count(*)::int as n from job_outcomes outcome join jobs on jobs.job_id = outcome.job_id
    where outcome.state = $1 group by 1`,
    [stateNumber('FAILED')],
  );
  const blank = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, 0]));
  const found: Recount = { gauges: {}, counters: {}, runs: {}, failedNow: {} };
  for (const addon of ['', ...addons]) {
    const ours = <T extends { addon: string }>(row: T) => addon === '' || row.addon === addon;
    const gauges: Record<string, number> = blank(gaugeNames);
    const add = (name: string, n: number) => {
      gauges[name] = (gauges[name] ?? 0) + n;
    };
    for (const { state, n, units } of live.filter(ours)) {
      if (state === 0) add('jobs_queued', n);
      else if (state <= 3) {
        add('jobs_claimed', n);
        add('reserved', units);
      } else {
        add('jobs_running', n);
        add('leases_active', n);
        add('capacity_used', units);
      }
    }
    found.gauges[addon] = gauges;
    const counters: Record<string, number> = blank(Object.keys(counted));
    for (const { type, n } of events.filter(ours)) {
      const name = Object.entries(counted).find(([, number]) => number === type)?.[0];
      if (name) counters[name] = (counters[name] ?? 0) + n;
    }
    found.counters[addon] = counters;
    found.failedNow[addon] = failed.filter(ours).reduce((sum, { n }) => sum + n, 0);
    found.runs[addon] = leases.filter(ours).map(({ ms }) => ms);
  }
  return found;
}

const told = ({ jobs, leases, capacity }: Snapshot) => ({
  jobs_queued: jobs.queued,
  jobs_claimed: jobs.claimed,
  jobs_running: jobs.running,
  leases_active: leases.active,
  capacity_used: capacity.used,
  reserved: capacity.reserved,
});

/** The exact percentile of the durations, in the histogram's slots. */
function exactly(values: readonly number[], share: number): number | null {
  const slots = emptyHistogram();
  for (const ms of values) {
    const slot = Math.ceil(Math.log(Math.max(ms, 1)) / Math.log(slotGrowth));
    slots[slot] = (slots[slot] ?? 0) + 1;
  }
  return percentile(slots, share);
}

/** The last event and tally before a round. */
interface Before {
  event: string;
  tally: string;
}

async function look(sql: Sql): Promise<Before> {
  const [row] = await sql.query<Before>(
    `select coalesce((select max(event_id) from ${allEvents}), 0)::text as event,
      (select coalesce(max(tally_id), -1) from stat_tallies)::text as tally`,
    [],
  );
  return row as Before;
}

describe('statistics after a random history', () => {
  onEveryEngine((kind) => {
    it('matches a recount for each submitter and all, before and after aggregation', async function () {
      this.timeout(120_000);
      await using store = await kind.open();
      const { database } = store;
      const engine = engineOn(database, settings);
      const world: World = { engine, jobIds: [], grants: [] };
      const history = fc.sample(fc.noBias(fc.array(op, { minLength: opsPerRound, maxLength: opsPerRound })), {
        seed,
        numRuns: rounds,
      });
      // The minute may change meanwhile.
      const [clock] = await database.query<{ now: string }>(
        "select date_trunc('minute', clock_timestamp())::text as now",
        [],
      );
      const reference = clock?.now ?? '';
      const truths: { tsMs: number; truth: Recount; waits: Record<string, number[]> }[] = [];
      for (const [i, ops] of history.entries()) {
        const before = await look(database);
        for (const one of ops) await step(world, one);
        const truth = await recount(database, before.event);
        for (const addon of [null, ...addons]) {
          const snapshot = await engine.stats.snapshot({ addon_id: addon }, caller);
          const words = `${addon ?? 'all'} in round ${i}`;
          expect(told(snapshot), words).to.deep.equal(truth.gauges[addon ?? '']);
          expect(snapshot.last24h.failed, `failed, ${words}`).to.equal(truth.failedNow[addon ?? '']);
        }
        // Each round is one minute, some minutes after the one before.
        const minute = (rounds - 1 - i) * 7;
        await database.query(
          "update stat_tallies set at = $1::timestamptz - $2::int * interval '1 minute' where tally_id > $3",
          [reference, minute, before.tally],
        );
        truths.push({
          tsMs: Date.parse(reference) - minute * 60_000,
          truth,
          waits: await waitsOf(database, before),
        });
        if (i % 4 === 1) await engine.services.statsAggregator.runOnce();
        if (i % 4 === 2) await database.transaction((sql) => aggregateTallies(sql, 5, 100));
      }
      expect(await tallies(database)).to.be.above(0);
      await compare(engine, truths, 'while some are added up');
      await engine.services.statsAggregator.runOnce();
      expect(await tallies(database)).to.equal(0);
      await compare(engine, truths, 'after all are added up');
      const last24h = (await engine.stats.snapshot({}, caller)).last24h;
      const sum = (name: string) =>
        truths.reduce((all, { truth }) => all + (truth.counters['']?.[name] ?? 0), 0);
      expect(last24h).to.deep.equal({
        submitted: sum('jobs_submitted'),
        done: sum('jobs_done'),
        failed: truths.at(-1)?.truth.failedNow[''],
        canceled: sum('jobs_canceled'),
        timeouts: sum('jobs_timeout'),
        granted: sum('leases_granted'),
        expired: sum('leases_expired'),
      });
      for (const [name, n] of Object.entries(last24h))
        expect(n, `the history has too little of ${name}`).to.be.above(0);
      expect(last24h.failed, 'no job that had failed was retried').to.be.below(sum('jobs_failed'));
      expect(await engine.services.statsAggregator.audit()).to.deep.equal({
        shortfalls: [],
        wasTotalWrong: false,
      });
      await engine.stop();
    });
  });
});

async function tallies(sql: Sql): Promise<number> {
  const [row] = await sql.query<{ n: number }>('select count(*)::int as n from stat_tallies', []);
  return row?.n ?? 0;
}

/** The waits of the jobs leased in the round, as slots of its tallies, by submitter. */
async function waitsOf(sql: Sql, { tally }: Before): Promise<Record<string, number[]>> {
  const rows = await sql.query<{ addon: string; slot: number }>(
    `select addon_id as addon, slot from stat_tallies tally join lanes on lanes.lane_id = tally.lane_id
    cross join lateral unnest(waits) as slot where tally_id > $1`,
    [tally],
  );
  const waits: Record<string, number[]> = {};
  for (const addon of ['', ...addons]) {
    const ours = rows.filter((row) => addon === '' || row.addon === addon);
    waits[addon] = ours.map(({ slot }) => slotGrowth ** (slot - 0.5));
  }
  return waits;
}

async function compare(
  engine: TestedEngine,
  truths: readonly { tsMs: number; truth: Recount; waits: Record<string, number[]> }[],
  when: string,
): Promise<void> {
  const shares: Partial<Record<MetricName, [of: 'runs' | 'waits', share: number]>> = {
    run_ms_p50: ['runs', 0.5],
    run_ms_p95: ['runs', 0.95],
    wait_ms_p50: ['waits', 0.5],
    wait_ms_p95: ['waits', 0.95],
  };
  for (const metric of metricNames) {
    for (const addon of metric === 'capacity_usable' ? [null] : [null, ...addons]) {
      const command = { metric, bucket: '1m', range: '2h', addon_id: addon } as const;
      const { points } = await engine.stats.timeseries(command, caller);
      expect(points).to.have.length(120);
      for (const { tsMs, truth, waits } of truths) {
        const words = `${metric} of ${addon ?? 'all'}, at ${new Date(tsMs).toISOString()}, ${when}`;
        const found = points.find((point) => point.tsMs === tsMs)?.value;
        const key = addon ?? '';
        const share = shares[metric];
        if (metric === 'capacity_usable') continue;
        if (share)
          expect(found, words).to.equal(
            exactly(share[0] === 'runs' ? (truth.runs[key] ?? []) : (waits[key] ?? []), share[1]),
          );
        else expect(found, words).to.equal(truth.gauges[key]?.[metric] ?? truth.counters[key]?.[metric]);
      }
    }
  }
}
