/** The links of the documents lead somewhere, and the README stays short. */
import { existsSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect } from 'chai';
import { anchorsIn, documents, root, textOf } from '../support/documents.ts';

/** The links of a document to files of the repository, without those in code. */
function linksIn(text: string): string[] {
  const prose = text.replaceAll(/^```.*?^```$/gms, '').replaceAll(/`[^`\n]*`/g, '');
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, link = '']) => link)
    .filter((link) => !/^[a-z]+:/.test(link));
}

describe('documents', () => {
  const anchors = new Map(documents().map((path) => [path, anchorsIn(textOf(path))]));
  const anchorsOf = (path: string) => [...(anchors.get(path) ?? anchorsIn(textOf(path)))];

  for (const path of documents()) {
    it(`link from ${path} to files and sections that exist`, () => {
      for (const link of linksIn(textOf(path))) {
        const [file = '', anchor] = link.split('#');
        const target = file === '' ? path : normalize(join(dirname(path), file));
        expect(existsSync(join(root, target)), `${path}: ${link}`).to.equal(true);
        if (anchor !== undefined) expect(anchorsOf(target), `${path}: ${link}`).to.include(anchor);
      }
    });
  }

  it('keep the README below 8,001 bytes', () => {
    expect(statSync(join(root, 'README.md')).size).to.be.at.most(8_000);
  });

  it('list each banned word of the glossary once, on a line of its own', () => {
    const [, list = ''] = /^```banned\n(.*?)^```$/ms.exec(textOf('docs/glossary.md')) ?? [];
    const words = list.trimEnd().split('\n');
    expect(words).to.have.length.above(20);
    expect(new Set(words).size).to.equal(words.length);
    for (const word of words) expect(word).to.match(/^[a-z]+( [a-z]+)*$/);
  });
});
