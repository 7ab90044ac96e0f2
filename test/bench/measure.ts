import type { Round, Untimed } from './load/drive.ts';
import { cpuMs, machineCpuMs } from './proc.ts';
import type { Bench, CpuShare, Figure } from './scenario.ts';
import { type Latency, median } from './stats.ts';

/** What a round cost the others. */
interface Costs {
  serverCpuMs: number | undefined;
  databaseCpuMs: number | undefined;
  machineCpuMs: number | undefined;
}

/** A round, and what it cost the others. */
export type Sample<R extends Untimed = Round> = R & Costs;

/** Plays one round and watches who works for it; the server is ours, or what somebody else's jobs are kept in. */
export async function sample<R extends Untimed>(
  { stage }: Pick<Bench, 'stage'>,
  server: { pid: number } | undefined,
  play: () => Promise<R>,
): Promise<Sample<R>> {
  const look = () => ({
    server: server && cpuMs(server.pid),
    database: stage.databaseCpuMs(),
    machine: machineCpuMs(),
  });
  const before = look();
  const round = await play();
  const after = look();
  return {
    ...round,
    serverCpuMs: difference(before.server, after.server),
    databaseCpuMs: difference(before.database, after.database),
    machineCpuMs: difference(before.machine, after.machine),
  };
}

const difference = (before: number | undefined, after: number | undefined): number | undefined =>
  before === undefined || after === undefined ? undefined : after - before;

/** A warm-up, then as many rounds as are wanted. */
export async function samples<R extends Round>(
  bench: Bench,
  server: { pid: number } | undefined,
  play: (durationMs: number) => Promise<R>,
): Promise<(R & Sample)[]> {
  const { warmUpMs, repeats, roundMs } = bench.sizes;
  if (warmUpMs > 0) await play(warmUpMs);
  const taken: (R & Sample)[] = [];
  for (let i = 0; i < repeats; i++) taken.push(await sample(bench, server, () => play(roundMs)));
  return taken;
}

export const perSecond = ({ done, elapsedMs }: Pick<Round, 'done' | 'elapsedMs'>): number =>
  (done / elapsedMs) * 1000;

/** Rounds as a line of the report. */
export function throughput(
  name: string,
  unit: string,
  taken: readonly Sample<Untimed>[],
  goal?: Figure['goal'],
): Figure {
  const latencies = taken.flatMap(({ latency }) => latency ?? []);
  const middle = (of: keyof Latency) => median(latencies.map((latency) => latency[of]));
  return {
    name,
    unit,
    values: taken.map(perSecond),
    goal,
    latency: latencies.length > 0 ? { p50Ms: middle('p50Ms'), p99Ms: middle('p99Ms') } : undefined,
    cpu: cpuShare(taken),
  };
}

function cpuShare(taken: readonly Sample<Untimed>[]): CpuShare {
  const each = (ms: (sample: Sample<Untimed>) => number | undefined) => {
    const known = taken.flatMap((one) => {
      const spent = ms(one);
      return spent === undefined ? [] : (spent * 1000) / one.done;
    });
    return known.length === 0 ? undefined : median(known);
  };
  const all = (one: Sample<Untimed>) => one.loadCpuMs + (one.serverCpuMs ?? 0) + (one.databaseCpuMs ?? 0);
  return {
    server: each(({ serverCpuMs }) => serverCpuMs),
    database: each(({ databaseCpuMs }) => databaseCpuMs),
    load: each(({ loadCpuMs }) => loadCpuMs) ?? 0,
    cores: median(taken.map((one) => all(one) / one.elapsedMs)),
    otherCores: median(taken.map((one) => Math.max(0, (one.machineCpuMs ?? 0) - all(one)) / one.elapsedMs)),
  };
}

/** The embedded engine is asked for half of what PostgreSQL is. */
export const rateGoal = ({ engine }: Pick<Bench, 'engine'>, postgresql: number) => ({
  atLeast: engine === 'postgresql' ? postgresql : postgresql / 2,
});
