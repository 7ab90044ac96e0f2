/** Colours: on a terminal only, unless the user decides otherwise. */
import { expect } from 'chai';
import { betweenColors, painted, styleOf, usesColor } from '../../../src/cli/support/color.ts';
import { runCommand } from '../../support/process.ts';

const terminal = { isTTY: true };
const pipe = {};

describe('the use of colours', () => {
  it('colours the output of a terminal only', () => {
    expect(usesColor(terminal, {})).to.equal(true);
    expect(usesColor(pipe, {})).to.equal(false);
    expect(usesColor(terminal, { TERM: 'dumb' })).to.equal(false);
  });

  it('respects NO_COLOR and FORCE_COLOR', () => {
    expect(usesColor(terminal, { NO_COLOR: '1' })).to.equal(false);
    expect(usesColor(terminal, { NO_COLOR: '' })).to.equal(true);
    expect(usesColor(pipe, { FORCE_COLOR: '1' })).to.equal(true);
    expect(usesColor(pipe, { FORCE_COLOR: '1', NO_COLOR: '1' })).to.equal(true);
    expect(usesColor(terminal, { FORCE_COLOR: '0' })).to.equal(false);
  });

  it('lets --color decide before the environment and the terminal', () => {
    expect(usesColor(pipe, { NO_COLOR: '1' }, 'always')).to.equal(true);
    expect(usesColor(terminal, { FORCE_COLOR: '1' }, 'never')).to.equal(false);
  });

  it('paints a text only with a style, and only where colours are on', () => {
    expect(painted('DONE', styleOf('DONE'), true)).to.equal('\u001b[32mDONE\u001b[0m');
    expect(painted('DONE', styleOf('DONE'), false)).to.equal('DONE');
    expect(painted('NEW_STATE', styleOf('NEW_STATE'), true)).to.equal('NEW_STATE');
  });

  it('keeps its own control sequences, and lets the caller escape all others', () => {
    const text = `${painted('WARN', 'yellow', true)} \u001b[8mhidden`;
    expect(betweenColors(text, (part) => part.replaceAll('\u001b', '?'))).to.equal(
      '\u001b[33mWARN\u001b[0m ?[8mhidden',
    );
  });
});

describe('the flag --color', () => {
  const unreachable = ['--url', 'http://127.0.0.1:9'];
  const coloured = (text: string) => text.includes('\u001b[31mPROBLEM\u001b[0m');

  it('colours a pipe before and behind the command, and never a line of JSON', async () => {
    for (const args of [
      ['--color=always', 'doctor'],
      ['--color', 'always', 'doctor'],
      ['doctor', '--color', 'always'],
    ])
      expect(coloured((await runCommand([...args, ...unreachable])).stdout), args.join(' ')).to.equal(true);
    const json = await runCommand(['doctor', '--color', 'always', '--json', ...unreachable]);
    expect(json.stdout).not.to.include('\u001b');
    expect(JSON.parse(json.stdout).level).to.equal('PROBLEM');
  });

  it('leaves a pipe without colours where the user says nothing', async () => {
    expect((await runCommand(['doctor', ...unreachable])).stdout).not.to.include('\u001b');
  });

  it('exits with 2 for an unknown value', async () => {
    for (const args of [
      ['--color', 'red', 'doctor'],
      ['doctor', '--color=red'],
    ]) {
      const { code, stderr } = await runCommand(args);
      expect([code, stderr.split('\n')[0]]).to.deep.equal([
        2,
        'leasehold: --color must be one of auto, always, never, not "red"',
      ]);
    }
  });
});
