/** No name that clients, scripts and dashboards rely on changes by accident: `public-names.json` keeps all of them. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect } from 'chai';
import {
  differences,
  type NameList,
  publicNamesFile,
  readNames,
  sentenceOf,
  textOf,
  updateNames,
} from './support/name-list.ts';
import { publicNames } from './support/public-names.ts';

describe('the public names', () => {
  it('are those of test/public-names.json: none is removed or changed, and none is missing there', async () => {
    const sentences = differences(readNames(publicNamesFile), await publicNames()).map(sentenceOf);
    expect(sentences, `\n${sentences.join('\n')}\n`).to.be.empty;
  }).timeout(60_000);

  it('stand in the file in order, one a line', () => {
    expect(readFileSync(publicNamesFile, 'utf8')).to.equal(textOf(readNames(publicNamesFile)));
  });
});

describe('the list of public names', () => {
  const kept: NameList = {
    metrics: ['a_total = counter {kind}', 'b = gauge'],
    'event types': ['JOB_DONE'],
  };
  let folder: string;
  let file: URL;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'leasehold-name-list-'));
    file = pathToFileURL(join(folder, 'names.json'));
    writeFileSync(file, textOf(kept));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  const sentences = (now: NameList) => differences(kept, now).map(sentenceOf);
  const without = (...lines: string[]): NameList => ({
    metrics: (kept.metrics ?? []).filter((line) => !lines.includes(line)),
    'event types': (kept['event types'] ?? []).filter((line) => !lines.includes(line)),
  });

  it('differs from itself in nothing', () => {
    expect(sentences(kept)).to.be.empty;
  });

  it('says of a name that is gone which it is', () => {
    expect(sentences(without('JOB_DONE'))).to.deep.equal([
      "event types: JOB_DONE was removed; if this is on purpose, run npm run public-names -- --remove 'JOB_DONE' and tell users in CHANGELOG.md",
    ]);
  });

  it('says of a name whose value has changed which it is', () => {
    expect(sentences({ ...kept, metrics: ['a_total = counter', 'b = gauge'] })).to.deep.equal([
      "metrics: a_total = counter {kind} was changed to a_total = counter; if this is on purpose, run npm run public-names -- --remove 'a_total' and tell users in CHANGELOG.md",
    ]);
  });

  it('says of a name that is new how to add it', () => {
    expect(sentences({ ...kept, 'event types': ['JOB_DONE', 'JOB_LOST'] })).to.deep.equal([
      'event types: JOB_LOST is new; run npm run public-names to add it',
    ]);
  });

  it('takes in what is new without being asked', () => {
    const now = { ...kept, 'event types': ['JOB_LOST', 'JOB_DONE'], rpcs: ['x/Y'] };
    expect(updateNames(file, now, [])).to.deep.equal({ problems: [], written: 2 });
    expect(readNames(file)).to.deep.equal({ ...now, 'event types': ['JOB_DONE', 'JOB_LOST'] });
  });

  it('lets no name go or change that it was not told to remove, and then takes in nothing', () => {
    const now = { metrics: ['a_total = gauge', 'c = gauge'], 'event types': ['JOB_DONE'] };
    const { problems, written } = updateNames(file, now, ['b']);
    expect(written).to.equal(0);
    expect(problems).to.have.length(1);
    expect(problems[0]).to.match(/^metrics: a_total = counter \{kind\} was changed to a_total = gauge;/);
    expect(readNames(file)).to.deep.equal(kept);
    expect(updateNames(file, now, ['b', 'a_total'])).to.deep.equal({ problems: [], written: 3 });
    expect(readNames(file)).to.deep.equal(now);
  });

  it('refuses to remove a name that is still there', () => {
    const { problems } = updateNames(file, kept, ['b']);
    expect(problems).to.deep.equal(["'b' is neither removed nor changed"]);
  });
});
