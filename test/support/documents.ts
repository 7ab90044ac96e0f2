/** Documents of the repository, and the code blocks in them. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));

/** The text of a document, by its path in the repository. */
export const textOf = (path: string): string => readFileSync(join(root, path), 'utf8');

/** The documents that have commands to be pasted. */
export const tours = (): string[] => ['README.md', ...globSync('docs/guides/*.md', { cwd: root }).sort()];

/** Every document at the top of the repository and below `docs/`. */
export const documents = (): string[] => globSync(['*.md', 'docs/**/*.md'], { cwd: root }).sort();

export interface Block {
  /** What stands behind the opening fence: `sh`, `sh norun`, `js`. */
  info: string;
  code: string;
  /** Texts that the output must have: one for each `<!-- expect: … -->` behind the block. */
  expects: string[];
  /** The name under which the reader saves it: `<!-- file: … -->` before the block. */
  file: string | undefined;
}

const block =
  /(?:^<!-- file: (?<file>\S+) -->\n\n?)?^```(?<info>[^\n]*)\n(?<code>.*?)^```$(?<after>(?:\n+<!-- expect: [^\n]* -->)*)/gms;

export const blocksIn = (text: string): Block[] =>
  [...text.matchAll(block)].map(({ groups = {} }) => ({
    info: groups.info ?? '',
    code: groups.code ?? '',
    file: groups.file,
    expects: [...(groups.after ?? '').matchAll(/<!-- expect: (.*) -->/g)].map(([, text = '']) => text),
  }));

/** The anchors that GitHub gives to the headings of a document. */
export function anchorsIn(text: string): Set<string> {
  const seen = new Map<string, number>();
  const anchors = new Set<string>();
  const prose = text.replaceAll(/^```.*?^```$/gms, '');
  for (const [, title = ''] of prose.matchAll(/^#+ (.*)$/gm)) {
    const anchor = title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-');
    const before = seen.get(anchor) ?? 0;
    seen.set(anchor, before + 1);
    anchors.add(before === 0 ? anchor : `${anchor}-${before}`);
  }
  return anchors;
}
