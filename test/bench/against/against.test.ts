import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { temporaryFolder } from '../../support/cleanup.ts';
import { engines } from '../../support/engines.ts';
import { noteNotRun } from '../../support/programs.ts';
import type { Comparison } from './duel.ts';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const main = join(root, 'test/bench/main.ts');
/** Of one run, which takes some ten seconds of processor time, on a machine that others keep busy as well. */
const limitMs = 180_000;

interface Ended {
  code: number;
  output: string;
}

/** Resolves however the benchmark ends; one that takes too long is killed. */
const bench = (...args: string[]): Promise<Ended> =>
  new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [main, ...args],
      { cwd: root, timeout: limitMs, killSignal: 'SIGTERM' },
      (error, stdout, stderr) => {
        const code = error ? error.code : 0;
        const output = `${stdout}${stderr}`;
        if (typeof code === 'number') resolve({ code, output });
        else reject(new Error(`the benchmark did not end by itself:\n${output}`, { cause: error }));
      },
    );
  });

// What is compared is one tree with itself, and a bound that no machine can miss or reach makes the outcome certain.
if (engines.includes('postgresql'))
  describe('the benchmark of a tree against itself', function () {
    this.timeout(limitMs + 10_000);

    it('plays pairs of every figure of a scenario on leases that each tree has seeded, and ends with 0 where all hold', async () => {
      const json = join(await temporaryFolder('against'), 'figures.json');
      const flags = ['--only', 'heartbeat-frames', '--bound', '0.001', '--json', json];
      const { code, output } = await bench('--against', root, '--smoke', ...flags);
      expect(code, output).to.equal(0);
      const { comparisons } = JSON.parse(await readFile(json, 'utf8')) as { comparisons: Comparison[] };
      expect(comparisons.map(({ verdict }) => verdict)).to.deep.equal(['holds', 'holds']);
      for (const { name, rates, ratio, failure } of comparisons) {
        expect(failure, name).to.equal(undefined);
        expect([rates.own.length, rates.other.length, ratio.values.length], name).to.deep.equal([6, 6, 6]);
        expect(Math.min(...rates.own, ...rates.other), name).to.be.above(0);
      }
    });

    it('ends with 1 where a figure is below the bound', async () => {
      const flags = ['--only', 'submit-singly', '--bound', '999'];
      const { code, output } = await bench('--against', root, '--smoke', ...flags);
      expect(output).to.match(/bound 999: below/);
      expect(code, output).to.equal(1);
    });

    it('ends with 2 where the other folder is no tree', async () => {
      const { code, output } = await bench('--against', await temporaryFolder('empty'), '--smoke');
      expect(output).to.match(/no node_modules/);
      expect(code, output).to.equal(2);
    });
  });
else noteNotRun('postgresql', 'the benchmark of a tree against itself');
