/**
 * `npm run attack`: a server under attack, and a client that must not notice. See `--help`.
 *
 * Bounds of each attack:
 * - the server lives, and none of the client's leases is lost;
 * - the 99th percentile of the client's heartbeats is at most twice the undisturbed one, or 100 ms if
 *   that is more;
 * - within 60 s after the attack the server's resident memory is within 64 MiB of its value before.
 *
 * Undisturbed means alone, or beside a process that burns the attacker's core, whichever is slower. An
 * attack that only exceeds the bound of heartbeats runs once more.
 *
 * The attacker has one core and other addresses than the client. The control uses the same core for
 * complete requests: what the client notices of the control is the price of sharing a machine, not of an
 * attack.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { cleanUp, forgetProcess, temporaryFolder, watchProcess } from '../support/cleanup.ts';
import { findPostgres, sharedPostgres } from '../support/postgres.ts';
import { type ServerProcess, startServer } from '../support/process.ts';
import { HonestClient, p99 } from './honest-client.ts';
import { attacks } from './list.ts';
import type { Attack, Counts, Target } from './wire.ts';

const MiB = 1024 * 1024;
const grownMiBMax = 64;
const recoverMs = 60_000;
const p99FloorMs = 100;
const p99Factor = 2;
/** How long a heartbeat that was sent during an attack may take to be answered. */
const lastAnswersMs = 1_000;

const help = `Usage: npm run attack [-- options]

Attacks a server of its own, and measures what another client notices of it.

  --only <names>    these attacks, separated by commas
  --seconds <n>     how long each attack lasts (default 20)
  --json <file>     writes the figures
  --survival        judges crashes and failed heartbeats alone: on a busy machine times and memory say little
  --list            names the attacks

Exits with 1 if a bound is exceeded.
`;

interface Result {
  name: string;
  units: number;
  connections: number;
  beats: number;
  p99Ms: number;
  failures: number;
  beforeMiB: number;
  mostMiB: number;
  afterMiB: number;
  recoveredS: number;
  problems: string[];
}

const attackerFile = fileURLToPath(new URL('./attacker.ts', import.meta.url));
const print = (line: string) => process.stdout.write(`${line}\n`);

function residentMiB(pid: number): number {
  const kB = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return (Number(kB) * 1024) / MiB;
}

/** Runs an attack in a process of its own, on the last core. */
async function attackWith({ name }: Attack, target: Target): Promise<Counts> {
  const command = [process.execPath, attackerFile, name, JSON.stringify(target)];
  const core = String(availableParallelism() - 1);
  const child = spawn('taskset', ['-c', core, ...command], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child, 'spawn');
  await watchProcess(child.pid as number);
  const limit = setTimeout(() => child.kill('SIGKILL'), (target.seconds + 30) * 1_000);
  const [said, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  clearTimeout(limit);
  await forgetProcess(child.pid as number);
  if (code !== 0) throw new Error(`the attacker ended with ${code}`);
  return JSON.parse(said) as Counts;
}

interface Stage {
  server: ServerProcess;
  client: HonestClient;
  seconds: number;
  p99MsMax: number;
  survival: boolean;
}

async function underAttack(
  attack: Attack,
  { server, client, seconds, p99MsMax, survival }: Stage,
): Promise<Result> {
  const beforeMiB = residentMiB(server.pid);
  let mostMiB = beforeMiB;
  const sampling = setInterval(() => {
    if (!server.isOver) mostMiB = Math.max(mostMiB, residentMiB(server.pid));
  }, 100);
  client.take();
  const target: Target = { grpc: server.grpc, http: server.http.replace('http://', ''), seconds };
  const { units, connections } = await attackWith(attack, target);
  const endedAt = performance.now();
  await delay(lastAnswersMs);
  const { times, failures } = client.take();
  let afterMiB = server.isOver ? Number.NaN : residentMiB(server.pid);
  while (
    !survival &&
    !server.isOver &&
    afterMiB > beforeMiB + grownMiBMax &&
    performance.now() - endedAt < recoverMs
  ) {
    await delay(250);
    afterMiB = residentMiB(server.pid);
  }
  clearInterval(sampling);
  const recoveredS = (performance.now() - endedAt) / 1_000;
  const problems: string[] = [];
  const p99Ms = p99(times);
  if (server.isOver) problems.push('the server has crashed');
  if (failures.length > 0) problems.push(`${failures.length} heartbeats failed: ${failures[0]}`);
  if (times.length === 0) problems.push('no heartbeat was answered');
  if (!survival && p99Ms > p99MsMax) problems.push(`p99 above ${p99MsMax.toFixed(0)} ms`);
  if (!survival && afterMiB > beforeMiB + grownMiBMax)
    problems.push(`memory has grown by more than ${grownMiBMax} MiB`);
  if (units === 0) problems.push('the attack did nothing');
  const { name } = attack;
  const beats = times.length;
  return {
    name,
    units,
    connections,
    beats,
    p99Ms,
    failures: failures.length,
    beforeMiB,
    mostMiB,
    afterMiB,
    recoveredS,
    problems,
  };
}

/** They show what the machine and plain load cost, and are held to no bound. */
const isControl = ({ name }: { name: string }): boolean => name === 'burn' || name === 'control';

const isOnlySlow = ({ p99Ms, problems }: Result, p99MsMax: number): boolean =>
  p99Ms > p99MsMax && problems.length === 1;

const columns: readonly [string, (result: Result) => string][] = [
  ['attack', ({ name }) => name],
  ['sent', ({ units }) => units.toLocaleString('en')],
  ['connections', ({ connections }) => connections.toLocaleString('en')],
  ['heartbeats', ({ beats }) => String(beats)],
  ['p99 ms', ({ p99Ms }) => p99Ms.toFixed(0)],
  ['failed', ({ failures }) => String(failures)],
  ['MiB before', ({ beforeMiB }) => beforeMiB.toFixed(0)],
  ['most', ({ mostMiB }) => mostMiB.toFixed(0)],
  ['after', ({ afterMiB }) => afterMiB.toFixed(0)],
  [
    'verdict',
    ({ name, problems }) => (problems.length > 0 ? problems.join('; ') : isControl({ name }) ? '-' : 'held'),
  ],
];

function table(results: readonly Result[]): string {
  const rows = [
    columns.map(([heading]) => heading),
    ...results.map((one) => columns.map(([, of]) => of(one))),
  ];
  const widths = columns.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  return rows
    .map((row) => `| ${row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |`)
    .toSpliced(1, 0, `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`)
    .join('\n');
}

async function environment(): Promise<Record<string, string>> {
  const settings = { LEASEHOLD_CAPACITY_TOTAL: '1000000', LEASEHOLD_LOG: 'error' };
  if ((await findPostgres()) === undefined)
    return { ...settings, LEASEHOLD_DATA_DIR: `${await temporaryFolder('attack')}/data` };
  const cluster = await sharedPostgres();
  return { ...settings, DATABASE_URL: cluster.url(await cluster.createDatabase()) };
}

async function run(
  names: readonly string[] | undefined,
  seconds: number,
  { json, survival }: { json?: string | undefined; survival: boolean },
): Promise<number> {
  const chosen = attacks.filter(
    ({ name }) => names === undefined || names.includes(name) || isControl({ name }),
  );
  const server = await startServer(await environment());
  const client = new HonestClient(server.grpc, server.http);
  await client.start();
  await delay(2_000);
  client.take();
  await delay(Math.max(seconds, 3) * 1_000);
  const undisturbed = p99(client.take().times);
  const p99MsMax = Math.max(p99Factor * undisturbed, p99FloorMs);
  print(`undisturbed p99: ${undisturbed.toFixed(1)} ms`);
  const stage: Stage = { server, client, seconds, p99MsMax, survival };
  const results: Result[] = [];
  for (const attack of chosen) {
    if (server.isOver) break;
    let result = await underAttack(attack, stage);
    if (attack.name === 'burn') stage.p99MsMax = Math.max(p99MsMax, p99Factor * result.p99Ms);
    // Other work on the machine delays heartbeats too, and rarely twice in a row.
    else if (!isControl(attack) && !server.isOver && isOnlySlow(result, stage.p99MsMax))
      result = await underAttack(attack, stage);
    if (isControl(attack)) result = { ...result, problems: [] };
    results.push(result);
    const verdict = result.problems.join('; ') || 'held';
    print(`${attack.name}: ${verdict} (${result.recoveredS.toFixed(0)} s after the end)`);
  }
  client.stop();
  print(`\n${table(results)}\n\nbound of p99: ${stage.p99MsMax.toFixed(0)} ms`);
  if (json !== undefined)
    writeFileSync(json, JSON.stringify({ seconds, undisturbed, p99MsMax: stage.p99MsMax, results }, null, 2));
  const broken = results.filter(({ problems }) => problems.length > 0).length;
  print(`\n${results.length - broken} held, ${broken} exceeded a bound`);
  if (!server.isOver) await server.stop();
  for (const line of server.stderr.slice(0, 20)) print(`server: ${line}`);
  return broken === 0 && results.length === chosen.length ? 0 : 1;
}

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    seconds: { type: 'string', default: '20' },
    json: { type: 'string' },
    survival: { type: 'boolean', default: false },
    list: { type: 'boolean' },
    help: { type: 'boolean' },
  },
});
const only = values.only?.split(',');
const seconds = Number(values.seconds);
const unknown = only?.filter((name) => !attacks.some((attack) => attack.name === name)) ?? [];
if (values.help) print(help);
else if (values.list) for (const { name, about } of attacks) print(`${name.padEnd(20)} ${about}`);
else if (unknown.length > 0 || !(seconds >= 1 && seconds <= 3_600)) {
  process.stderr.write(`attack: ${unknown.length > 0 ? `no attack ${unknown.join()}` : 'bad --seconds'}\n`);
  process.exitCode = 2;
} else {
  try {
    process.exitCode = await run(only, seconds, values);
  } finally {
    for (const failure of await cleanUp()) process.stderr.write(`attack: ${failure.stack}\n`);
  }
}
