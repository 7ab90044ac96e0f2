/** Reads which files import which, and finds cycles. Paths are relative to the root of the project. */
import { globSync, readFileSync } from 'node:fs';
import { join, posix, sep } from 'node:path';

export const root = join(import.meta.dirname, '..', '..');

export interface Import {
  from: string;
  to: string;
  /** Is erased: it loads nothing. */
  isTypeOnly: boolean;
}

export interface SourceFile {
  path: string;
  text: string;
  imports: readonly Import[];
}

/** `import … from '…'`, `export … from '…'` and `import('…')`, each with a relative path. */
const statements = /^(?:import|export)(?<type> type)?\s(?:[^'"`;=]*\sfrom\s)?'(?<path>\.[^']*)'/gm;
const calls = /(?<type>typeof )?import\(\s*'(?<path>\.[^']*)'/g;

/** The imports of one file. `import { type A }` loads its module; `import type { A }` does not. */
export function importsIn(path: string, text: string): Import[] {
  const matches = [...text.matchAll(statements), ...text.matchAll(calls)];
  return matches.map(({ groups }) => ({
    from: path,
    to: posix.join(posix.dirname(path), groups?.path ?? ''),
    isTypeOnly: groups?.type !== undefined,
  }));
}

export function sourcesIn(pattern: string): SourceFile[] {
  return globSync(pattern, { cwd: root })
    .map((path) => path.split(sep).join('/'))
    .sort()
    .map((path) => {
      const text = readFileSync(join(root, path), 'utf8');
      return { path, text, imports: importsIn(path, text) };
    });
}

export type Graph = ReadonlyMap<string, ReadonlySet<string>>;

/** The graph of what `edges` connect, with each end called as `nameOf` says. */
export function graphOf(edges: readonly Import[], nameOf: (path: string) => string): Graph {
  const graph = new Map<string, Set<string>>();
  for (const edge of edges) {
    const [from, to] = [nameOf(edge.from), nameOf(edge.to)];
    if (from !== to) graph.set(from, (graph.get(from) ?? new Set()).add(to));
  }
  return graph;
}

/** One cycle of each group of nodes that reach each other, as `a -> b -> a`. */
export function cyclesIn(graph: Graph): string[] {
  const cycles: string[] = [];
  const done = new Set<string>();
  const path: string[] = [];
  const visit = (node: string): void => {
    const at = path.indexOf(node);
    if (at >= 0) cycles.push([...path.slice(at), node].join(' -> '));
    if (at >= 0 || done.has(node)) return;
    path.push(node);
    for (const next of graph.get(node) ?? []) visit(next);
    path.pop();
    done.add(node);
  };
  for (const node of [...graph.keys()].sort()) visit(node);
  return cycles;
}

/** Everything that can be reached from these nodes. */
export function reachableFrom(graph: Graph, nodes: readonly string[]): Set<string> {
  const reached = new Set<string>();
  const open = [...nodes];
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    if (reached.has(node)) continue;
    reached.add(node);
    open.push(...(graph.get(node) ?? []));
  }
  return reached;
}
