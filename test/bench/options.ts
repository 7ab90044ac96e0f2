import { parseArgs } from 'node:util';
import { type EngineName, engines } from '../support/engines.ts';
import { type ClientKind, clients } from './load/link.ts';

export interface Options {
  help: boolean;
  smoke: boolean;
  quick: boolean;
  long: boolean;
  profile: boolean;
  /** Names of scenarios; all where undefined. */
  only: readonly string[] | undefined;
  engines: readonly EngineName[];
  client: ClientKind;
  repeats: number | undefined;
  json: string | undefined;
  /** The folder of another checkout, whose server plays against this one's. */
  against: string | undefined;
  /** With `against`: this tree's server asks for keys, and the load sends one. */
  keys: boolean;
  /** The least ratio of this tree's rate to the other's that is not a step back. */
  bound: number;
}

/** A command line that cannot be understood. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Not every scenario can be played against another tree: `comparedNames` can. */
export function readOptions(
  args: readonly string[],
  scenarioNames: readonly string[],
  comparedNames: readonly string[] = scenarioNames,
): Options {
  const { values } = parse(args);
  const { against, bound } = values;
  if (against !== undefined) checkAgainst(values);
  else if (bound !== undefined) throw new UsageError('--bound is of use only with --against');
  else if (values.keys) throw new UsageError('--keys is of use only with --against');
  const only = values.only?.split(',');
  for (const name of only ?? []) oneOf('--only', name, against === undefined ? scenarioNames : comparedNames);
  const engine = values.engine === undefined ? undefined : oneOf('--engine', values.engine, engines);
  return {
    help: values.help,
    smoke: values.smoke,
    quick: values.quick,
    long: values.long,
    profile: values.profile,
    only,
    engines: engine === undefined ? usual(values.quick) : [engine],
    client: oneOf('--client', values.client, clients),
    repeats: values.repeats === undefined ? undefined : whole('--repeats', values.repeats),
    json: values.json ?? (values.smoke ? undefined : 'leasehold-bench.json'),
    against,
    keys: values.keys,
    bound: bound === undefined ? defaultBound : ratio('--bound', bound),
  };
}

const defaultBound = 0.97;

function checkAgainst(values: { quick: boolean; long: boolean; engine?: string | undefined }): void {
  for (const flag of ['quick', 'long'] as const)
    if (values[flag]) throw new UsageError(`--against has sizes of its own: leave out --${flag}`);
  if (values.engine === 'embedded' || !engines.includes('postgresql'))
    throw new UsageError('--against needs PostgreSQL');
}

/** Whoever has a minute sees what the goals speak of, which is PostgreSQL where there is one. */
const usual = (quick: boolean): readonly EngineName[] =>
  quick && engines.includes('postgresql') ? ['postgresql'] : engines;

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        help: { type: 'boolean', short: 'h', default: false },
        smoke: { type: 'boolean', default: false },
        quick: { type: 'boolean', default: false },
        long: { type: 'boolean', default: false },
        profile: { type: 'boolean', default: false },
        only: { type: 'string' },
        engine: { type: 'string' },
        client: { type: 'string', default: 'lean' },
        repeats: { type: 'string' },
        json: { type: 'string' },
        against: { type: 'string' },
        bound: { type: 'string' },
        keys: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function oneOf<Word extends string>(flag: string, word: string, allowed: readonly Word[]): Word {
  const found = allowed.find((candidate) => candidate === word);
  if (found === undefined)
    throw new UsageError(`${flag} is '${word}'; on this machine it may be ${allowed.join(', ')}`);
  return found;
}

function whole(flag: string, text: string): number {
  if (!/^[1-9]\d{0,2}$/.test(text)) throw new UsageError(`${flag} is '${text}'; it must be from 1 to 999`);
  return Number(text);
}

function ratio(flag: string, text: string): number {
  if (!/^\d{1,3}(\.\d{1,6})?$/.test(text) || Number(text) === 0)
    throw new UsageError(`${flag} is '${text}'; it must be a number above 0, such as 0.97`);
  return Number(text);
}

export const help = (
  scenarios: readonly { name: string; about: string }[],
  compared: readonly string[],
): string => `\
Measures a server, in a process of its own, under load from another, with the database beside them; and beside it what
others do with the same jobs on the same machine.

Usage: npm run bench -- [options]

  --smoke             everything once and tiny, within a minute: whether it works, not how fast it is
  --quick             within a minute: one short round of all that is compared with others, and of heartbeats, on PostgreSQL
  --long              everything at its full length and size, which takes hours: a million leases are kept for ten minutes, a
                      store with ten million jobs that are over is drained for ten, and one works at half its load for an hour
  --only <name,...>   only these scenarios
  --engine <name>     postgresql or embedded; all that this machine has where left out
  --client <name>     lean (default) or grpc-js: who makes the gRPC calls; both share the processors with the server
  --repeats <n>       rounds of each measurement
  --profile           a CPU profile of the server for each scenario
  --against <folder>  another checkout of Leasehold, with its node_modules: its server and this tree's play rounds in pairs, on
                      PostgreSQL, under the load of this tree; 11 pairs where --repeats is left out
  --keys              with --against: this tree's server asks for keys and the load sends one; with
                      --against . the ratio is what authentication costs
  --bound <ratio>     with --against: the least ratio of this tree's rate to the other's; 0.97 where left out
  --json <file>       where the figures go for a program to read; leasehold-bench.json where left out, and nowhere in a smoke run

Scenarios:
${scenarios.map(({ name, about }) => `  ${name.padEnd(18)}${about}`).join('\n')}

A figure is the median of its rounds, with the least and the greatest beside it. Those who do the same do it by turns, and
the ratios at the end are of rounds that followed one another. The exit code is 1 where something
failed, a job was handed out twice, or a lease was lost that was kept, and 0 otherwise: a goal that is missed may be
the machine's fault.

With --against, a figure is the median of the ratios of its pairs, this tree's rate to the other's, with the 95 % interval
of that median. It is 'below' where the whole interval is below the bound, 'undecided' where the interval contains the
bound and is wider than 3 % to either side, and 'holds' otherwise. The exit code is 1 where a figure is below, 3 where
something failed, and 0 otherwise. The scenarios are ${compared.join(', ')}.
`;
