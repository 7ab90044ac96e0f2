/**
 * `npm test`: the whole suite as two runs of mocha at the same time, because most tests wait for something, and what they
 * wait for has two cores at the least. What is named on the command line is run by one mocha, as it would be without this.
 *
 * Each half has processes, ports, folders and a PostgreSQL of its own, and knows nothing of the other. The first is
 * shown as it goes, the second when the first is over, and what failed in the first once more after that; the last
 * line counts both.
 */
import { spawn } from 'node:child_process';
import { globSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { countIn, countsLine, failuresIn } from './report-lines.ts';

const mocha = fileURLToPath(import.meta.resolve('mocha/bin/mocha.js'));

/** The folders of the first half; all others are in the second. */
const firstHalf = new Set(['cli', 'contracts', 'engine', 'rest', 'support']);

interface Half {
  output: Promise<string>;
  code: Promise<number>;
}

function start(args: readonly string[], isShown: boolean): Half {
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

async function both(): Promise<number> {
  const files = globSync('test/**/*.test.ts').sort();
  const isFirst = (file: string) => firstHalf.has(file.split(/[\\/]/)[1] ?? '');
  const first = start(files.filter(isFirst), true);
  const second = start(
    files.filter((file) => !isFirst(file)),
    false,
  );
  const codes = [await first.code, await second.code];
  process.stdout.write(`\n${await second.output}`);
  process.stdout.write(failuresIn(await first.output));
  const counts = [countIn(await first.output), countIn(await second.output)];
  const sum = (of: 'passed' | 'failed') => counts.reduce((total, count) => total + count[of], 0);
  const failed = Math.max(sum('failed'), codes.filter((code) => code !== 0).length);
  process.stdout.write(`\n${countsLine(sum('passed'), failed)}\n`);
  return failed === 0 ? 0 : 1;
}

const args = process.argv.slice(2);
process.exitCode = args.length > 0 ? await start(args, true).code : await both();
