/**
 * `npm run docs`: writes the generated sections of `docs/` anew. `test/docs/reference.test.ts` fails where a section is
 * not what this program would write.
 *
 * A generated section stands between `<!-- generated: name -->` and `<!-- end: name -->`. All other text is written by
 * people, and this program leaves it as it is.
 */
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { diagram } from '../src/domain/jobs/state-machine.ts';
import { heartbeatTransitions, workTransitions } from '../src/rpc/heartbeat-stream/states.ts';
import { cliSection } from './generator/cli.ts';
import { errorsSection } from './generator/errors.ts';
import { fileEventsSection, jobEventsSection } from './generator/events.ts';
import { grpcSections } from './generator/grpc.ts';
import { fenced } from './generator/markdown.ts';
import { metricsSection } from './generator/metrics.ts';
import { restSections } from './generator/rest.ts';
import { withServer } from './generator/server.ts';
import { settingsSection } from './generator/settings.ts';

export const root = fileURLToPath(new URL('..', import.meta.url));

/** The text of every generated section, by its name. */
export async function renderSections(): Promise<Map<string, string>> {
  const [cli, grpc, { rest, metrics }] = await Promise.all([
    cliSection(root),
    grpcSections(root),
    withServer(async ({ openApi, metrics }) => ({
      rest: restSections(openApi),
      metrics: metricsSection(metrics),
    })),
  ]);
  return new Map([
    ['state-diagram', fenced('mermaid', diagram())],
    ['heartbeat-stream-states', fenced('mermaid', heartbeatTransitions.diagram('Open'))],
    ['work-stream-states', fenced('mermaid', workTransitions.diagram('Open'))],
    ['settings', settingsSection()],
    ['errors', errorsSection()],
    ['job-events', jobEventsSection()],
    ['file-events', fileEventsSection()],
    ['metrics', metrics],
    ['cli', cli],
    ...Object.entries(grpc),
    ...Object.entries(rest),
  ]);
}

const section = /^<!-- generated: ([\w-]+) -->\n.*?^<!-- end: \1 -->$/gms;

/** The names of the generated sections of a document. */
export const sectionsIn = (text: string): string[] =>
  [...text.matchAll(section)].map(([, name = '']) => name);

/** A document with its generated sections as they should be. */
export const filled = (text: string, sections: ReadonlyMap<string, string>): string =>
  text.replaceAll(section, (_, name: string) => {
    const content = sections.get(name);
    if (content === undefined) throw new Error(`no section is called ${name}`);
    return `<!-- generated: ${name} -->\n\n${content}\n\n<!-- end: ${name} -->`;
  });

/** The documents below `docs/`, by their paths in the repository. */
export const documents = (): string[] => globSync('docs/**/*.md', { cwd: root }).sort();

async function main(): Promise<void> {
  const sections = await renderSections();
  for (const path of documents()) {
    const before = readFileSync(join(root, path), 'utf8');
    const after = filled(before, sections);
    if (after === before) continue;
    writeFileSync(join(root, path), after);
    process.stdout.write(`${path}\n`);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
