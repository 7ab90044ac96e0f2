/** The generated sections of the documents are what `npm run docs` would write now. */
import { expect } from 'chai';
import { documents, filled, renderSections, sectionsIn } from '../../docs/generate.ts';
import { textOf } from '../support/documents.ts';

describe('npm run docs', () => {
  let sections: Map<string, string>;
  before(async function () {
    this.timeout(90_000);
    sections = await renderSections();
  });

  for (const path of documents()) {
    it(`has nothing to change in the generated sections of ${path}`, () => {
      const text = textOf(path);
      expect(filled(text, sections), 'npm run docs writes it anew').to.equal(text);
    });
  }

  it('writes each generated section into one document', () => {
    const used = documents().flatMap((path) => sectionsIn(textOf(path)));
    expect(used).to.have.members([...sections.keys()]);
  });
});
