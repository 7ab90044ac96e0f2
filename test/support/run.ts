/**
 * `npm test`: the whole suite as five runs of mocha at the same time, because most tests wait for something, and what
 * they wait for has two cores at the least. The fifth waits for minutes of real time and does next to nothing. And then,
 * with nothing beside them, those that hold the server to a time or to a share of a core. What is named on the command
 * line is run by one mocha, as it would be without this.
 *
 * Each run has processes, ports, folders and a PostgreSQL of its own, and knows nothing of the others. The first is
 * shown as it goes, the others when they are over, and what failed in any of them once more after that; the last line
 * counts all.
 */
import { spawn } from 'node:child_process';
import { globSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { countIn, countsLine, failuresIn, notRunIn } from './report-lines.ts';

const mocha = fileURLToPath(import.meta.resolve('mocha/bin/mocha.js'));

/** The folders of the first three runs; all others are in the fourth. */
const folders = [new Set(['agent', 'cli', 'rest', 'transport']), new Set(['server']), new Set(['store'])];
const isAlone = (file: string) => file.endsWith('.alone.test.ts');
/** Waits for real time to pass, which takes minutes and hardly any work. */
const isRealTime = (file: string) => file.endsWith('.realtime.test.ts');

interface Run {
  output: Promise<string>;
  code: Promise<number>;
}

function start(args: readonly string[], isShown: boolean): Run {
  const child = spawn(process.execPath, [mocha, ...args], { stdio: ['inherit', 'pipe', 'inherit'] });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => child.kill(signal));
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    if (isShown) process.stdout.write(chunk);
  });
  const code = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => resolve(status ?? 1));
  });
  return { code, output: code.then(() => Buffer.concat(chunks).toString()) };
}

/** Which run a file is in, by its folder or by its name. */
function runOf(file: string): number {
  if (isRealTime(file)) return folders.length + 1;
  const folder = file.split(/[\\/]/)[1] ?? '';
  const named = folders.findIndex((names) => names.has(folder));
  return named < 0 ? folders.length : named;
}

async function everything(): Promise<number> {
  const files = globSync('test/**/*.test.ts').sort();
  const together = files.filter((file) => !isAlone(file));
  const runs = Array.from({ length: folders.length + 2 }, (_, n) =>
    start(
      together.filter((file) => runOf(file) === n),
      n === 0,
    ),
  );
  for (const [n, { output }] of runs.entries()) {
    const text = await output;
    if (n > 0) process.stdout.write(`\n${text}`);
  }
  process.stdout.write('\n');
  runs.push(start(files.filter(isAlone), true));
  const outputs = await Promise.all(runs.map(({ output }) => output));
  const codes = await Promise.all(runs.map(({ code }) => code));
  for (const output of outputs) process.stdout.write(failuresIn(output));
  const counts = outputs.map(countIn);
  const sum = (of: 'passed' | 'failed') => counts.reduce((total, count) => total + count[of], 0);
  const failed = Math.max(sum('failed'), codes.filter((code) => code !== 0).length);
  const left = notRunIn(outputs);
  if (left !== undefined) process.stdout.write(`\n${left}\n`);
  process.stdout.write(`\n${countsLine(sum('passed'), failed)}\n`);
  return failed === 0 ? 0 : 1;
}

const args = process.argv.slice(2);
process.exitCode = args.length > 0 ? await start(args, true).code : await everything();
