/** The guarantee: an idle server uses almost no processor time and little memory. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { findPostgres } from '../support/postgres.ts';
import { startServer } from '../support/process.ts';
import { connect, createPostgresStore } from '../support/server-clients.ts';

const run = promisify(execFile);
const watchedMs = 10_000;
const triesMax = 3;
const shareMax = 0.01;
const residentMaxMib = 200;

interface Usage {
  cpuMs: number;
  residentMib: number;
}

/** The processor time that the process has used so far, and its current memory. */
async function usageOf(pid: number): Promise<Usage> {
  return process.platform === 'linux' ? usageOnLinux(pid) : usageByPs(pid);
}

async function usageOnLinux(pid: number): Promise<Usage> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // The second field is the program's name in brackets, which may contain blanks; the needed fields follow
  // it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[11]) + Number(fields[12]);
  const ticksPerSecond = Number((await run('getconf', ['CLK_TCK'])).stdout);
  const resident = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1];
  return { cpuMs: (ticks * 1_000) / ticksPerSecond, residentMib: Number(resident) / 1_024 };
}

async function usageByPs(pid: number): Promise<Usage> {
  const { stdout } = await run('ps', ['-o', 'time=,rss=', '-p', String(pid)]);
  const [time = '', kib = ''] = stdout.trim().split(/\s+/);
  const seconds = time.split(/[:-]/).reduce((sum, part) => sum * 60 + Number(part), 0);
  return { cpuMs: seconds * 1_000, residentMib: Number(kib) / 1_024 };
}

if (findPostgres()) {
  describe('an idle server on PostgreSQL', () => {
    it('uses less than 1 % of a core and less than 200 MiB while idle', async function () {
      this.timeout(60_000);
      await using store = await createPostgresStore();
      await using server = await startServer(store.env);
      using client = connect(server);
      for (let i = 0; i < 10; i++) {
        await client.jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 });
        await client.rest('POST', '/api/scheduler/jobs/claim', { worker_id: 'w' });
      }
      // Other load on the machine can only add to the figure, so the minimum of several runs is the most
      // accurate.
      let share = Number.POSITIVE_INFINITY;
      let residentMib = Number.POSITIVE_INFINITY;
      let after = await usageOf(server.pid);
      for (let i = 0; i < triesMax && (share >= shareMax || residentMib >= residentMaxMib); i++) {
        const before = after;
        await delay(watchedMs);
        after = await usageOf(server.pid);
        share = Math.min(share, (after.cpuMs - before.cpuMs) / watchedMs);
        residentMib = Math.min(residentMib, after.residentMib);
      }
      const told = `${(share * 100).toFixed(2)} % of a core, ${residentMib.toFixed(0)} MiB`;
      process.stdout.write(`      idle: ${told}\n`);
      expect(share, 'share of a core').to.be.below(shareMax);
      expect(residentMib, 'MiB resident').to.be.below(residentMaxMib);
    });
  });
}
