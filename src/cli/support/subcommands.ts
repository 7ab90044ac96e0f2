import type { Command } from '../main.ts';
import { type FlagTypes, UsageError } from './args.ts';
import { printHelp } from './output.ts';

/** One action of a command. `run` returns the exit code. */
export interface Subcommand {
  name: string;
  flags: FlagTypes;
  run(args: readonly string[]): Promise<number>;
}

/** A command whose first argument names the action. */
export function commandOf(
  name: string,
  help: () => string,
  verbs: readonly Subcommand[],
  byDefault?: Subcommand,
): Command {
  return {
    name,
    flags: byDefault?.flags ?? {},
    verbs,
    help,
    async run(args) {
      if (args.includes('--help') || args.includes('-h')) {
        printHelp(help());
        return 0;
      }
      const [word, ...rest] = args;
      const verb = verbs.find((each) => each.name === word);
      if (verb) return verb.run(rest);
      if (byDefault && (word === undefined || word.startsWith('-'))) return byDefault.run(args);
      const known = verbs.map((each) => each.name).join(', ');
      if (word === undefined) throw new UsageError(`${name} needs a command: ${known}`);
      throw new UsageError(`${name} has no command ${JSON.stringify(word)}; its commands are ${known}`);
    },
  };
}
