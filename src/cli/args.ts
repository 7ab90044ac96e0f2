import { parseArgs } from 'node:util';
import { flagVariables } from '../config.ts';

/** A command line that cannot be understood. Ends with exit code 2, as shells expect. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Arguments {
  help: boolean;
  /** Settings by the name of their variable. */
  settings: Record<string, string>;
}

/** Reads the flags of a command that takes settings and nothing else. */
export function readSettings(args: readonly string[]): Arguments {
  const flags = Object.fromEntries(
    [...flagVariables.keys()].map((flag) => [flag, { type: 'string' } as const]),
  );
  const { values } = parse(args, flags);
  const settings: Record<string, string> = {};
  for (const [flag, variable] of flagVariables) {
    const value = (values as Record<string, unknown>)[flag];
    if (typeof value === 'string') settings[variable] = value;
  }
  return { help: values.help === true, settings };
}

/** Reads the flags of a command that takes none but `--help`. */
export const readNothing = (args: readonly string[]): { help: boolean } => ({
  help: parse(args, {}).values.help === true,
});

function parse(args: readonly string[], options: Record<string, { type: 'string' }>) {
  try {
    return parseArgs({
      args: [...args],
      options: { ...options, help: { type: 'boolean', short: 'h' } },
      allowPositionals: false,
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}
