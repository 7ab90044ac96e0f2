import { type Config, readConfig } from '../../config.ts';
import { createLog, type Log } from '../../lib/log.ts';
import { readSettings } from './args.ts';
import { printHelp } from './output.ts';

/** Reads the settings of a command and creates its log; undefined where `--help` was requested and printed. */
export function prepare(
  args: readonly string[],
  help: () => string,
): { config: Config; log: Log } | undefined {
  const asked = readSettings(args);
  if (asked.help) {
    printHelp(help());
    return undefined;
  }
  const config = readConfig(asked.settings, process.env);
  return { config, log: createLog({ level: config.log, human: process.stderr.isTTY === true }) };
}
