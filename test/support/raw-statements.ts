/** Finds, in the sources, every place from which SQL text reaches the database without MikroORM. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..', '..');

/** A place in the sources that sends SQL text. */
export interface RawPlace {
  /** The file and the declaration it is in: `src/store/a.ts#lockJobs`. */
  name: string;
  file: string;
  line: number;
}

/**
 * What sends a text, prepares one, or takes hold of something that could: statements of the database and of a connection, raw
 * statements of MikroORM and Kysely, a pool or a client of one's own.
 */
const senders = [
  /\.query\s*[<(]/g,
  /\.execute(?:Query|Dump)\s*[<(]/g,
  // A query builder is executed without arguments, or with the name of a result's shape.
  /\.execute\s*(?:<[^(]*>)?\((?!\s*(?:\)|'))/g,
  /[cC]onnection\.run\s*[<(]/g,
  /\b(?:prepared(?:Statement)?|onHeads)(?:\(|<[^(]*>\()/g,
  /\.(?:getNativeClient|getClient|getConnection)\(/g,
  /\bnew (?:pg\.)?(?:Client|Pool|PreparedClient)\(/g,
];

const declared =
  /^(?:export )?(?:default )?(?:abstract )?(?:async )?(?:function\*?|const|let|class|interface|type|enum) (\w+)/;
const member =
  /^ {2}(?:(?:override|static|readonly|async|private|protected|get|set) )*\*?(#?\w+)\s*(?:[<(]|=)/;

/** The places of one file. */
export function rawPlacesIn(file: string, text: string): RawPlace[] {
  const lines = text.split('\n');
  const found = new Map<number, RawPlace>();
  for (const sender of senders) {
    for (const { index } of text.matchAll(sender)) {
      const line = text.slice(0, index).split('\n').length;
      const code = lines[line - 1] ?? '';
      if (
        /^\s*(?:\*|\/\/|\/\*)/.test(code) ||
        /^export function (?:prepared(?:Statement)?|onHeads)\b/.test(code)
      )
        continue;
      // Two texts that are prepared on one line are two statements.
      const place = { name: `${file}#${declarationAt(lines, line)}`, file, line };
      found.set(index, place);
    }
  }
  return [...found.values()].sort((a, b) => a.line - b.line);
}

/** The declaration that a line is in. The formatter puts those of a module at the margin, and members of a class behind two spaces. */
function declarationAt(lines: readonly string[], line: number): string {
  let method: string | undefined;
  for (let at = line - 1; at >= 0; at--) {
    const code = lines[at] ?? '';
    const [, name] = declared.exec(code) ?? [];
    if (name !== undefined) return /\bclass\b/.test(code) && method ? `${name}.${method}` : name;
    method ??= member.exec(code)?.[1];
  }
  return 'module';
}

/** All places of the sources. */
export function findRawPlaces(): RawPlace[] {
  return globSync('src/**/*.ts', { cwd: root })
    .map((file) => file.replaceAll('\\', '/'))
    .sort()
    .flatMap((file) => rawPlacesIn(file, readFileSync(join(root, file), 'utf8')));
}

/** How many there are of each name. */
export function countByName(places: readonly RawPlace[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { name } of places) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

export interface RawStatementList {
  /** Why statements are written by hand. */
  reasons: Record<string, string>;
  /** Each place, how many statements there are in it, and the name of the reason. */
  statements: Record<string, { count: number; reason: string }>;
}

export const readRawStatementList = (): RawStatementList =>
  JSON.parse(readFileSync(join(root, 'test', 'store', 'raw-statements.json'), 'utf8')) as RawStatementList;
