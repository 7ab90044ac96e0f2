/** The guarantee: the page for operators explains every finding that the doctor can make, and no other. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const root = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** The rules, and the command that adds what only a client can find. */
const sources = globSync(['src/domain/doctor*.ts', 'src/domain/doctor/*.ts', 'src/cli/**/doctor.ts'], {
  cwd: root,
})
  .map(read)
  .join('\n');

const matchesIn = (text: string, pattern: RegExp): string[] =>
  [...text.matchAll(pattern)].map(([, found = '']) => found);

/** Codes are literals, but for the names of settings and the pairs of codes in a list. */
function codesOfTheDoctor(): string[] {
  const lists = matchesIn(sources, /const codes = \[([^\]]*)\] as const/g).join();
  const codes = [
    ...matchesIn(sources, /\b(?:found|unread)\(\s*'(\w+)'/g),
    ...matchesIn(sources, /\bfinding\(\s*'\w+',\s*'(\w+)'/g),
    ...matchesIn(sources, /\bcode: '(\w+)'/g),
    ...matchesIn(sources, /^ {4}name: '(\w+)',$/gm),
    ...matchesIn(lists, /'(\w+)'/g),
  ];
  return [...new Set(codes)].sort();
}

describe('docs/operations/troubleshooting.md', () => {
  it('explains every code of the doctor once', () => {
    const page = read('docs/operations/troubleshooting.md');
    const findings = page.slice(page.indexOf('## Findings'), page.indexOf('## Symptoms'));
    const explained = matchesIn(findings, /^\| `(\w+)` \|/gm);
    expect(codesOfTheDoctor()).to.have.length.above(30);
    expect(explained.toSorted()).to.deep.equal(codesOfTheDoctor());
  });

  it('finds all codes, because no call passes one in another form', () => {
    const variables = matchesIn(sources, /\b(?:found|unread)\(\s*([a-z]\w*)[,)]/g);
    expect([...new Set(variables)].sort()).to.deep.equal(['code', 'name']);
  });
});
