/**
 * The guarantee: the structure of the source tree holds. Exceptions are named in `test/architecture/`.
 * These lists may only shrink: a test fails for a new exception, and for one that is no longer needed.
 *
 * After a cleanup, run this file with SHRINK_EXCEPTIONS=1 to write the lists anew.
 * It never adds or raises one.
 */
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { expect } from 'chai';
import { cyclesIn, graphOf, importsIn, reachableFrom, root, sourcesIn } from './support/source-graph.ts';

/**
 * What the files of a folder may import, beside the folder itself.
 * The longest name that a file's path begins with decides. A name that ends with `.ts` is one file.
 */
const mayImport: Record<string, readonly string[]> = {
  lib: ['domain/errors.ts'],
  domain: ['lib'],
  store: ['domain', 'lib'],
  'store/migrations': [],
  telemetry: ['domain', 'lib'],
  'telemetry/gauges': ['telemetry', 'domain', 'lib', 'store', 'engine', 'transport/transport.ts'],
  transport: ['domain', 'lib', 'store', 'telemetry'],
  engine: ['domain', 'lib', 'store', 'telemetry', 'transport/transport.ts'],
  rpc: ['domain', 'lib', 'engine', 'telemetry', 'gen'],
  rest: ['domain', 'lib', 'engine', 'telemetry'],
  'rest/server': ['rest', 'domain', 'lib', 'engine', 'telemetry', 'transport/transport.ts'],
  client: ['gen'],
  agent: ['client', 'domain', 'lib'],
  cli: ['agent', 'client', 'domain', 'lib', 'config.ts'],
  'cli/commands/migrate.ts': ['cli', 'domain', 'lib', 'config.ts', 'store'],
  'cli/commands/serve.ts': ['cli', 'domain', 'lib', 'config.ts', 'store', 'server.ts', 'posture.ts'],
  'cli/support/local-keys.ts': ['cli', 'domain', 'lib', 'config.ts', 'store', 'engine/access', 'rest/access'],
  'config.ts': ['lib', 'settings'],
  settings: ['lib'],
  'posture.ts': ['config.ts', 'lib'],
  'server.ts': [
    'config.ts',
    'domain',
    'engine',
    'gen',
    'lib',
    'posture.ts',
    'rest',
    'rpc',
    'store',
    'telemetry',
    'transport',
  ],
  'main.ts': ['cli'],
};

/** Files that nothing imports: the command, the package's client, and a thread that is started by its URL. */
const entries = ['src/main.ts', 'src/client/grpc-client.ts', 'src/store/embedded/worker.ts'];

/** Folders of `src` whose size is not limited: they are no part of the server. */
const unlimited = ['src/cli', 'src/agent', 'src/web', 'src/ui'];
const filesInFolderMax = 15;

const linesMax = { src: 350, test: 400 } as const;

/** Folders of tests that mirror no folder of `src`. Other tests may import only `support` of them. */
const testFolders = ['test/support', 'test/bench', 'test/attack', 'test/architecture', 'test/docs'];

const { lineWidth } = JSON.parse(readFileSync(join(root, 'biome.json'), 'utf8')).formatter as {
  lineWidth: number;
};

const sources = sourcesIn('src/**/*.ts');
const tests = sourcesIn('test/**/*.ts');
const imports = sources.flatMap((source) => source.imports);
const loaded = imports.filter(({ isTypeOnly }) => !isTypeOnly);

const folderOf = (path: string): string => posix.dirname(path);
/** Files in `src` itself stand for themselves. */
const unitOf = (path: string): string => (folderOf(path) === 'src' ? path : folderOf(path));
const isIn = (path: string, folder: string): boolean => path === folder || path.startsWith(`${folder}/`);

/** Whether a file may import another one. */
function isAllowed(from: string, to: string): boolean {
  const [file, target] = [from, to].map((path) => path.replace(/^src\//, '')) as [string, string];
  const row = Object.keys(mayImport)
    .filter((name) => isIn(file, name))
    .sort((a, b) => b.length - a.length)[0];
  if (row === undefined) return false;
  return [row, ...(mayImport[row] ?? [])].some((name) => isIn(target, name));
}

/** Exceptions, and the reason for each or the number that it may not exceed. */
type Exceptions<Value> = Record<string, Value>;

const pathOf = (list: string) => join(root, 'test', 'architecture', `${list}.json`);
const readExceptions = <Value>(list: string): Exceptions<Value> =>
  JSON.parse(readFileSync(pathOf(list), 'utf8'));

function shrink<Value>(list: string, exceptions: Exceptions<Value>): void {
  if (!process.env.SHRINK_EXCEPTIONS) return;
  writeFileSync(pathOf(list), `${JSON.stringify(exceptions, null, 2)}\n`);
}

/** Holds what was found to a list of exceptions by name. */
function expectOnly(list: string, found: readonly string[]): void {
  const exceptions = readExceptions<string>(list);
  const isNew = found.filter((name) => !(name in exceptions));
  expect(isNew, `not allowed, and not in test/architecture/${list}.json`).to.deep.equal([]);
  const left = Object.entries(exceptions).filter(([name]) => found.includes(name));
  shrink(list, Object.fromEntries(left));
  const over = Object.keys(exceptions).filter((name) => !found.includes(name));
  expect(over, `no longer needed in test/architecture/${list}.json`).to.deep.equal([]);
}

/** Holds counts above a limit to a list of exceptions, each with the count that it may not exceed. */
function expectAtMost(list: string, found: ReadonlyMap<string, number>): void {
  const exceptions = readExceptions<number>(list);
  const above = [...found].filter(([name, count]) => count > (exceptions[name] ?? 0));
  const words = above.map(([name, count]) => `${name}: ${count}, allowed ${exceptions[name] ?? 'none'}`);
  expect(words, `more than test/architecture/${list}.json allows`).to.deep.equal([]);
  shrink(list, Object.fromEntries([...found].sort(([a], [b]) => (a < b ? -1 : 1))));
  const over = Object.keys(exceptions).filter((name) => !found.has(name));
  expect(over, `no longer needed in test/architecture/${list}.json`).to.deep.equal([]);
}

describe('the source tree', () => {
  it('imports only what each folder may import', () => {
    const forbidden = imports
      .filter(({ from, to }) => !isAllowed(from, to))
      .map(({ from, to }) => `${from} -> ${to}`);
    expectOnly('imports', [...new Set(forbidden)]);
  });

  it('keeps the SQL of migrations plain text, whose parts are not computed', () => {
    const folder = /^src\/store\/migrations\/v[\d.]+\//;
    const computed = sources
      .filter(({ path }) => folder.test(path))
      .flatMap(({ path, text }) => {
        const statements = text.match(/this\.addSql\(/g)?.length ?? 0;
        const plain = text.match(
          /this\.addSql\(\s*(?:'[^'\n]*'|"[^"\n]*"|`[^`$]*(?:\$[^{`][^`$]*)*`),?\s*\);/g,
        )?.length;
        const isPlain = statements > 0 && plain === statements && !text.includes('${');
        return isPlain ? [] : [path];
      });
    expect(computed).to.deep.equal([]);
    expect(sources.filter(({ path }) => folder.test(path))).to.have.length.above(10);
  });

  it('imports only files that exist, and has a rule for each file', () => {
    const known = new Set([...sources, ...tests].map(({ path }) => path));
    const all = [...sources, ...tests].flatMap((source) => source.imports);
    const missing = all.filter(({ to }) => /^(src|test)\//.test(to) && !known.has(to));
    expect(missing).to.deep.equal([]);
    const unruled = sources.filter(({ path }) => !isAllowed(path, path)).map(({ path }) => path);
    expect(unruled, 'folders without a row in mayImport').to.deep.equal([]);
    for (const row of Object.keys(mayImport)) expect(existsSync(join(root, 'src', row)), row).to.equal(true);
  });

  it('has no cycles of imports between files', () => {
    expect(cyclesIn(graphOf(loaded, (path) => path))).to.deep.equal([]);
  });

  it('has no cycles of imports between folders', () => {
    expect(cyclesIn(graphOf(loaded, unitOf))).to.deep.equal([]);
  });

  it('has no file that nothing uses', () => {
    const reached = reachableFrom(
      graphOf(imports, (path) => path),
      entries,
    );
    const unused = sources.map(({ path }) => path).filter((path) => !reached.has(path));
    const pages = globSync('src/web/**/*.*', { cwd: root });
    const unnamed = pages.filter(
      (page) => !sources.some(({ text }) => text.includes(`'${posix.basename(page)}'`)),
    );
    expect([...unused, ...unnamed]).to.deep.equal([]);
  });

  it('has no folder of the server with too many files', () => {
    const counts = new Map<string, number>();
    for (const { path } of sources) counts.set(folderOf(path), (counts.get(folderOf(path)) ?? 0) + 1);
    const large = [...counts].filter(
      ([folder, count]) => count > filesInFolderMax && !unlimited.some((name) => isIn(folder, name)),
    );
    expect(large).to.deep.equal([]);
  });

  it('has no file with too many lines, except those that are named', () => {
    const large = new Map<string, number>();
    for (const { path, text } of [...sources, ...tests]) {
      const lines = text.split('\n').length - 1;
      if (lines > linesMax[path.startsWith('src/') ? 'src' : 'test']) large.set(path, lines);
    }
    expectAtMost('large-files', large);
  });

  it('has no line that is too long, except where it is counted', () => {
    const long = new Map<string, number>();
    for (const { path, text } of [...sources, ...tests]) {
      const count = text.split('\n').filter((line) => line.length > lineWidth).length;
      if (count > 0) long.set(path, count);
    }
    expectAtMost('long-lines', long);
  });

  it('converts null to undefined at the edges only', () => {
    const inside = sources.filter(({ path }) => /^src\/(?:domain|engine|store)\//.test(path));
    const found = inside.filter(({ text }) => text.includes('?? undefined')).map(({ path }) => path);
    expect(found, 'absent values are null in the domain, the engine and the store').to.deep.equal([]);
  });
});

describe('the terms of the glossary', () => {
  const glossary = 'docs/glossary.md';
  const banned = (/```banned\n([\s\S]*?)```/.exec(readFileSync(join(root, glossary), 'utf8'))?.[1] ?? '')
    .split('\n')
    .filter((term) => term !== '');
  const pattern = new RegExp(
    `\\b(?:${banned.map((term) => term.replaceAll(' ', '\\s+')).join('|')})\\b`,
    'gi',
  );

  it('lists banned terms in a form that this test can read', () => {
    expect(banned.length).to.be.above(20);
    expect('the Desk hands  out what is over'.match(pattern)).to.have.length(3);
  });

  it('lets no banned term come back, except where it is counted', () => {
    const files = globSync(['src/**/*.ts', 'proto/**/*.proto', 'docs/**/*.md', 'README.md'], { cwd: root });
    const found = new Map<string, number>();
    for (const file of files) {
      if (file === glossary) continue;
      const count = readFileSync(join(root, file), 'utf8').match(pattern)?.length ?? 0;
      if (count > 0) found.set(file, count);
    }
    expectAtMost('banned-terms', found);
  });
});

describe('the effects of commits', () => {
  /** What must follow a commit, and the files beside the publisher that name it. */
  const followUps: Record<string, { pattern: RegExp; definedIn: readonly string[] }> = {
    notifications: {
      pattern: /\b(?:publishJobs|publishWorkAvailable|publishLeases|publishFiles|workAvailableOf)\b/,
      definedIn: ['src/engine/wakeups/notifier.ts', 'src/engine/wakeups/work-available.ts'],
    },
    rates: {
      pattern: /\b(?:noteJobsReady|noteUnitsFreed)\b/,
      definedIn: ['src/engine/dispatch/retry-hints.ts'],
    },
    deadlines: {
      pattern: /\bexpectIn\b/,
      definedIn: ['src/engine/maintenance/lease-reaper.ts', 'src/engine/services.ts'],
    },
    messages: { pattern: /\btransport\.(?:send|ack)\(/, definedIn: [] },
    outcomes: { pattern: /\bjobMeter\b|\bmetrics\.jobs\b/, definedIn: ['src/engine/services.ts'] },
    subscriptions: { pattern: /\bleaseSubscriptions\.publish\(/, definedIn: ['src/engine/services.ts'] },
  };
  const publisher = 'src/engine/context/commit-publisher.ts';

  for (const [kind, { pattern, definedIn }] of Object.entries(followUps)) {
    it(`names ${kind} only in the publisher and where they are defined`, () => {
      const found = sources
        .filter(({ path, text }) => isIn(path, 'src/engine') && pattern.test(text))
        .map(({ path }) => path);
      // The publisher wakes the subscribers of leases through the notifier.
      const allowed = kind === 'subscriptions' ? definedIn : [...definedIn, publisher];
      expect(found.sort()).to.deep.equal([...allowed].sort());
    });
  }
});

describe('the tree of tests', () => {
  const others = tests.filter(({ path }) => !testFolders.some((folder) => isIn(path, folder)));

  it('mirrors the folders of src', () => {
    const mirrored = (folder: string): boolean => {
      const twin = folder.replace(/^test/, 'src');
      return existsSync(join(root, twin)) || existsSync(join(root, `${twin}.ts`));
    };
    const folders = [...new Set(others.map(({ path }) => folderOf(path)))];
    expect(folders.filter((folder) => !mirrored(folder))).to.deep.equal([]);
  });

  it('imports helpers from test/support or from the same folder, and from nowhere else', () => {
    const across = others
      .flatMap((test) => test.imports)
      .filter(
        ({ from, to }) => isIn(to, 'test') && !isIn(to, 'test/support') && folderOf(to) !== folderOf(from),
      );
    expect(across.map(({ from, to }) => `${from} -> ${to}`)).to.deep.equal([]);
  });

  it('keeps test/support and test/bench free of tests in other folders', () => {
    const inwards = tests
      .filter(({ path }) => isIn(path, 'test/support') || isIn(path, 'test/bench'))
      .flatMap((test) => test.imports)
      .filter(({ to }) => isIn(to, 'test'))
      .filter(
        ({ from, to }) => !isIn(to, 'test/support') && !(isIn(from, 'test/bench') && isIn(to, 'test/bench')),
      );
    expect(inwards.map(({ from, to }) => `${from} -> ${to}`)).to.deep.equal([]);
  });
});

describe('the reading of imports', () => {
  const text = [
    "import { a } from './a.ts';",
    "import type { B } from '../b/b.ts';",
    "import { type C } from '../c.ts';",
    'import {',
    '  d,',
    "} from './d/d.ts';",
    "export { e } from './e.ts';",
    `const f = async () => (await ${'import'}('./f.ts')).f;`,
    "// import { g } from './g.ts';",
    "export const h = resolve('./h.ts');",
    "import chai from 'chai';",
  ].join('\n');
  const found = importsIn('src/x/x.ts', text);

  it('finds statements and calls, and resolves their paths', () => {
    expect(found.map(({ to }) => to)).to.deep.equal([
      'src/x/a.ts',
      'src/b/b.ts',
      'src/c.ts',
      'src/x/d/d.ts',
      'src/x/e.ts',
      'src/x/f.ts',
    ]);
  });

  it('tells imports that are erased from those that load a module', () => {
    expect(found.filter(({ isTypeOnly }) => isTypeOnly).map(({ to }) => to)).to.deep.equal(['src/b/b.ts']);
  });

  it('finds cycles between files and between folders', () => {
    const edges = [
      ...importsIn('src/p/one.ts', "import { two } from '../q/two.ts';"),
      ...importsIn('src/q/other.ts', "import { one } from '../p/one.ts';"),
    ];
    expect(cyclesIn(graphOf(edges, (path) => path))).to.deep.equal([]);
    expect(cyclesIn(graphOf(edges, unitOf))).to.deep.equal(['src/p -> src/q -> src/p']);
  });

  it('forbids an import against the layers', () => {
    expect(isAllowed('src/domain/jobs/job.ts', 'src/store/database.ts')).to.equal(false);
    expect(isAllowed('src/engine/engine.ts', 'src/transport/redis/keys.ts')).to.equal(false);
    expect(isAllowed('src/engine/engine.ts', 'src/transport/transport.ts')).to.equal(true);
    expect(isAllowed('src/lib/log.ts', 'src/domain/limits.ts')).to.equal(false);
  });
});
