import { parseArgs } from 'node:util';
import { flagVariables } from '../../config.ts';

/** An invalid command line. The command exits with 2, as shells expect. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Arguments {
  help: boolean;
  /** Settings by the name of their variable. */
  settings: Record<string, string>;
}

/** The flags of a command, without `--help`, which every command takes. */
export type FlagTypes = Readonly<Record<string, 'string' | 'boolean'>>;

/** The flags of a command that takes settings. */
export const settingFlags: FlagTypes = Object.fromEntries(
  [...flagVariables.keys()].map((flag) => [flag, 'string' as const]),
);

/** Reads the flags of a command that takes settings and nothing else. */
export function readSettings(args: readonly string[]): Arguments {
  const { values } = parse(args, settingFlags);
  const settings: Record<string, string> = {};
  for (const [flag, variable] of flagVariables) {
    const value = (values as Record<string, unknown>)[flag];
    if (typeof value === 'string') settings[variable] = value;
  }
  return { help: values.help === true, settings };
}

/** Reads the flags of a command that has only `--help`. */
export const readNothing = (args: readonly string[]): { help: boolean } => ({
  help: parse(args, {}).values.help === true,
});

/** The values of the given flags. */
type FlagValues<Types extends FlagTypes> = {
  [Flag in keyof Types]?: Types[Flag] extends 'string' ? string : boolean;
};

/** Reads the flags of a command, and the arguments between them. */
export function readFlags<const Types extends FlagTypes>(
  args: readonly string[],
  types: Types,
): { help: boolean; values: FlagValues<Types>; words: string[] } {
  const { values, positionals } = parse(args, types, true);
  const { help, ...given } = values;
  return { help: help === true, values: given as FlagValues<Types>, words: positionals };
}

function parse(args: readonly string[], types: FlagTypes, allowPositionals = false) {
  const flags = Object.fromEntries(Object.entries(types).map(([flag, type]) => [flag, { type }]));
  try {
    return parseArgs({
      args: [...args],
      options: { ...flags, help: { type: 'boolean', short: 'h' } },
      allowPositionals,
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? wordsOf(error) : String(error));
  }
}

/** Node's own message, without its advice, in one line. */
function wordsOf({ message }: Error): string {
  const flag = /^Option '(?:-\w, )?(--[\w-]+)(?: <value>)?' argument is ambiguous/.exec(message)?.[1];
  return flag === undefined
    ? message.replace(/\. To specify a positional argument .*/s, '')
    : `${flag} needs a value; one that begins with a dash is written as in ${flag}=-1`;
}
