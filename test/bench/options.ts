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
}

/** A command line that cannot be understood. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export function readOptions(args: readonly string[], scenarioNames: readonly string[]): Options {
  const { values } = parse(args);
  const only = values.only?.split(',');
  for (const name of only ?? []) oneOf('--only', name, scenarioNames);
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
  };
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

export const help = (scenarios: readonly { name: string; about: string }[]): string => `\
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
  --json <file>       where the figures go for a program to read; leasehold-bench.json where left out, and nowhere in a smoke run

Scenarios:
${scenarios.map(({ name, about }) => `  ${name.padEnd(18)}${about}`).join('\n')}

A figure is the median of its rounds, with the least and the greatest beside it. Those who do the same do it by turns, and
the ratios at the end are of rounds that followed one another. The exit code is 1 where something
failed, a job was handed out twice, or a lease was lost that was kept, and 0 otherwise: a goal that is missed may be
the machine's fault.
`;
