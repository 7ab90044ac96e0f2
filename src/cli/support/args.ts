import { parseArgs } from 'node:util';
import { flagVariables } from '../../config.ts';
import { colorModes, setColorMode } from './color.ts';

/** An invalid command line. The command exits with 2, as shells expect. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Arguments {
  help: boolean;
  /** Settings by the name of their variable. */
  settings: Record<string, string>;
}

/** Flags that every command takes. */
export const globalFlags = { help: { type: 'boolean', short: 'h' }, color: { type: 'string' } } as const;

/** The flags of a command, without the global ones. */
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
  const { help, color: _, ...given } = values;
  return { help: help === true, values: given as FlagValues<Types>, words: positionals };
}

function parse(args: readonly string[], types: FlagTypes, allowPositionals = false) {
  const parsed = parsedArgs(args, types, allowPositionals);
  if (typeof parsed.values.color === 'string') readColorMode(parsed.values.color);
  return parsed;
}

/** Reads the value of `--color`. */
export function readColorMode(value: string): void {
  const known = colorModes.find((each) => each === value);
  if (known === undefined)
    throw new UsageError(`--color must be one of ${colorModes.join(', ')}, not ${JSON.stringify(value)}`);
  setColorMode(known);
}

function parsedArgs(args: readonly string[], types: FlagTypes, allowPositionals: boolean) {
  const flags = Object.fromEntries(Object.entries(types).map(([flag, type]) => [flag, { type }]));
  try {
    return parseArgs({
      args: [...args],
      options: { ...flags, ...globalFlags },
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
