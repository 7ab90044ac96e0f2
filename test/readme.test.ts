import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { flagOf, settings } from '../src/config.ts';

describe('the README', () => {
  it('lists every setting with its flag, its default and what it is for', () => {
    const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
    for (const { variable, about, default: value, ...more } of Object.values(settings)) {
      const shown = 'defaultText' in more ? more.defaultText : value;
      expect(readme).to.include(`| \`${variable}\` | \`--${flagOf(variable)}\` | ${shown} | ${about} |`);
    }
  });
});
