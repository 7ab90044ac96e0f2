/** The output for a user who asks for help, and for one who mistypes. */
import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { flagOf, settings } from '../../src/config.ts';
import { type Exit, runCommand } from '../support/process.ts';

const commands = [
  'serve',
  'migrate',
  'jobs',
  'leases',
  'queue',
  'streams',
  'workers',
  'explain',
  'stats',
  'capacity',
  'doctor',
  'guard',
  'hook',
  'files',
  'version',
];

/** Expects every line of a run on the output stream on which scripts read it. */
function expectHelp({ code, stdout, stderr }: Exit, usage: string): void {
  expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
  expect(stdout).to.include(usage);
}

describe('leasehold', () => {
  it('lists its commands for every form of a request for help', async () => {
    const ways = [['--help'], ['-h'], ['help']];
    const exits = await Promise.all(ways.map((args) => runCommand(args)));
    for (const exit of exits) {
      expectHelp(exit, 'Usage: leasehold <command>');
      for (const command of commands) expect(exit.stdout).to.match(new RegExp(`^ +${command} +\\S`, 'm'));
    }
  });

  it('lists its commands, and exits with 2, if the user names none', async () => {
    const { code, stdout, stderr } = await runCommand([]);
    expect(code).to.equal(2);
    expect(stdout + stderr).to.include('Usage: leasehold <command>');
  });

  it('explains each command', async () => {
    const exits = await Promise.all(commands.map((command) => runCommand([command, '--help'])));
    for (const [i, exit] of exits.entries()) expectHelp(exit, `Usage: leasehold ${commands[i]}`);
  });

  it('prints the version of the package', async () => {
    const { version } = JSON.parse(await readFile(new URL('../../package.json', import.meta.url), 'utf8'));
    const exits = await Promise.all([['version'], ['--version']].map((args) => runCommand(args)));
    for (const { code, stdout, stderr } of exits) {
      expect({ code, stdout, stderr }).to.deep.equal({ code: 0, stdout: version, stderr: '' });
    }
  });

  it('documents flag, variable, purpose, allowed values and default of every setting', async () => {
    const exits = await Promise.all(['serve', 'migrate'].map((command) => runCommand([command, '--help'])));
    for (const { stdout } of exits) {
      for (const definition of Object.values(settings)) {
        const { variable, about, allowed, default: value } = definition;
        const defaultText = 'defaultText' in definition ? definition.defaultText : undefined;
        const entry = stdout.split(/^(?= {2}--)/m).find((text) => text.includes(`(${variable})`)) ?? '';
        expect(entry, variable).to.include(`--${flagOf(variable)} `);
        for (const word of [about, allowed, defaultText ?? String(value)]) expect(entry).to.include(word);
      }
    }
  });

  const mistakes: { args: string[]; says: string; help: string }[] = [
    { args: ['frobnicate'], says: '"frobnicate"', help: 'leasehold --help' },
    { args: ['--frobnicate'], says: '"--frobnicate"', help: 'leasehold --help' },
    { args: ['serve', '--frobnicate'], says: "'--frobnicate'", help: 'leasehold serve --help' },
    { args: ['serve', 'frobnicate'], says: "'frobnicate'", help: 'leasehold serve --help' },
    { args: ['serve', '--http-addr'], says: '--http-addr', help: 'leasehold serve --help' },
    { args: ['migrate', '--frobnicate=1'], says: "'--frobnicate'", help: 'leasehold migrate --help' },
    { args: ['version', '--log', 'info'], says: "'--log'", help: 'leasehold version --help' },
  ];

  it('names the usage error and where to find help, and exits with 2', async () => {
    const exits = await Promise.all(mistakes.map(({ args }) => runCommand(args)));
    for (const [i, { code, stdout, stderr }] of exits.entries()) {
      const { args, says, help } = mistakes[i] as (typeof mistakes)[number];
      expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 2, stdout: '' });
      expect(stderr).to.match(/^leasehold: /);
      expect(stderr).to.include(says).and.to.include(`See '${help}'.`);
    }
  });
});
