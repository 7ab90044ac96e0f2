/** Commands declare their flags, and the list of public names is generated from those declarations. */
import { expect } from 'chai';
import { type Command, commands, type Entry } from '../../src/cli/main.ts';
import type { FlagTypes } from '../../src/cli/support/args.ts';
import { runCommand } from '../support/process.ts';

interface Declared {
  /** The arguments after `leasehold`. */
  words: string[];
  flags: FlagTypes;
}

interface Loaded {
  words: string[];
  command: Command;
}

async function loaded(entries: readonly Entry[], above: readonly string[] = []): Promise<Loaded[]> {
  const found = await Promise.all(
    entries.map(async ({ name, load }) => {
      const command = await load();
      const words = [...above, name];
      return [{ words, command }, ...(await loaded(command.commands ?? [], words))];
    }),
  );
  return found.flat();
}

const declaredBy = ({ words, command: { flags, verbs = [] } }: Loaded): Declared[] => [
  { words, flags },
  ...verbs.map((verb) => ({ words: [...words, verb.name], flags: verb.flags })),
];

describe('the flags of commands', () => {
  let all: Loaded[];
  before(async () => {
    all = await loaded(commands);
  });

  it('accepts flags wherever commands declare them', async () => {
    const exits = await Promise.all(
      all.flatMap(declaredBy).map(async ({ words, flags }) => {
        const given = Object.entries(flags).map(([flag, type]) =>
          type === 'string' ? `--${flag}=1` : `--${flag}`,
        );
        return { words, ...(await runCommand([...words, ...given, '--no-such-flag'])) };
      }),
    );
    for (const { words, stderr } of exits) {
      const [problem = ''] = stderr.split('\n');
      expect(problem, words.join(' ')).to.match(/^leasehold: .*["'-]-no-such-flag/);
    }
  }).timeout(120_000);

  it('explains exactly the declared flags in the help of each command', () => {
    for (const each of all) {
      // The help for settings is generated from the settings.
      if (each.words[0] === 'serve' || each.words[0] === 'migrate') continue;
      const explained = [...each.command.help().matchAll(/(?<![\w-])--([a-z][a-z-]*)/g)].map(
        ([, flag]) => flag,
      );
      const declared = declaredBy(each).flatMap(({ flags }) => Object.keys(flags));
      expect(new Set(explained.filter((flag) => flag !== 'help')), each.words.join(' ')).to.deep.equal(
        new Set(declared),
      );
    }
  });
});
