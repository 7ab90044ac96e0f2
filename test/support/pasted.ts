/** Pastes the commands of a document into an interactive shell, as a reader does, and looks at what each block prints. */
import { spawn } from 'node:child_process';
import { readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { temporaryFolder } from './cleanup.ts';
import { type Block, blocksIn, root, textOf } from './documents.ts';

export interface Shell {
  program: string;
  args: readonly string[];
}

interface Addresses {
  http: string;
  grpc: string;
}

/** What users import by the package's name, in the sources of this checkout. */
function clientModule(): string {
  const { exports } = JSON.parse(textOf('package.json'));
  return join(root, exports['.'].default.replace(/^\.\/dist\//, 'src/').replace(/\.js$/, '.ts'));
}

/** A folder with everything that the checkout has, in which a document may write files of its own. */
async function checkout(): Promise<string> {
  const folder = await temporaryFolder('checkout');
  for (const name of readdirSync(root)) {
    if (name !== '.git' && name !== '.leasehold') symlinkSync(join(root, name), join(folder, name));
  }
  return folder;
}

/** A line that no command prints. */
const mark = (i: number): string => `@@ block ${i} has ended`;

/**
 * The shell stops at the first command that fails. A command of the documents must not read the standard input, which
 * would take the blocks behind it.
 */
function scriptOf(blocks: readonly Block[]): string {
  const parts = blocks.map(({ code }, i) => `${code}printf '\\n%s\\n' '${mark(i)}'\n`);
  return `set -e -o pipefail\n${parts.join('')}exit 0\n`;
}

/** Runs the blocks of one document in a folder of its own, and holds their output to what the document expects. */
export async function paste(document: string, shell: Shell, server: Addresses): Promise<void> {
  const here = (code: string) =>
    code.replaceAll('http://127.0.0.1:8080', server.http).replaceAll('127.0.0.1:50051', server.grpc);
  const folder = await checkout();
  const all = blocksIn(textOf(document));
  for (const { file, code } of all) {
    const own = here(code).replace("'leasehold'", JSON.stringify(clientModule()));
    if (file !== undefined) writeFileSync(join(folder, file), own);
  }
  const blocks = all.filter(({ info }) => info === 'sh').map((each) => ({ ...each, code: here(each.code) }));
  const { stdout, stderr, code } = await run(shell, folder, scriptOf(blocks), server);
  const report = `${document} in ${shell.program}\n${stdout}\n${stderr}`;
  let rest = stdout;
  for (const [i, { code: commands, expects }] of blocks.entries()) {
    const [printed = '', ...others] = rest.split(`\n${mark(i)}\n`);
    expect(others, `a command of this block failed:\n${commands}\n${report}`).to.have.lengthOf(1);
    rest = others[0] ?? '';
    for (const fragment of expects) expect(printed, `${commands}\n${stderr}`).to.include(fragment);
    checkAnswers(printed, expects);
  }
  expect(code, report).to.equal(0);
  expect(stderr, report).not.to.match(
    /not found|parse error|syntax error|unexpected|quote>|no matches|curl:/,
  );
}

/** An error that the document does not speak of fails the test. */
function checkAnswers(printed: string, expects: readonly string[]): void {
  for (const line of printed.split('\n').filter((each) => each.startsWith('{"'))) {
    const { code } = JSON.parse(line);
    const isExpected = code === undefined || expects.some((fragment) => fragment.includes(code));
    expect(isExpected, line).to.equal(true);
  }
}

/** Runs a shell with nothing of this environment but where programs are. */
async function run({ program, args }: Shell, folder: string, input: string, server: Addresses) {
  const env = {
    PATH: process.env.PATH ?? '',
    HOME: await temporaryFolder('home'),
    LEASEHOLD_URL: server.http,
    npm_config_update_notifier: 'false',
    PS1: '',
    PS2: '',
  };
  const child = spawn(program, args, { cwd: folder, env });
  child.stdin.end(input);
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  return { stdout, stderr, code };
}
