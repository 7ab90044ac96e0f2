/** `leasehold stats`, against a server that is absent for a while. */
import { expect } from 'chai';
import { onEveryEngine, type TestStore } from '../../support/engines.ts';
import { freePort } from '../../support/free-port.ts';
import { runCommand, type ServerProcess, startProcess, startServer, until } from '../../support/process.ts';

describe('leasehold stats', () => {
  onEveryEngine((engine) => {
    // The command calls one route, which does not depend on the engine. A server on PostgreSQL restarts
    // quickly.
    if (engine.name === 'embedded') return;

    let store: TestStore;
    let environment: Record<string, string>;
    let server: ServerProcess;
    before(async () => {
      store = await engine.create();
      environment = { ...store.env, LEASEHOLD_HTTP_ADDR: `127.0.0.1:${await freePort()}` };
      server = await startServer(environment);
      const job = { addon_id: 'a b', job_type: 't', cost_units: 7 };
      const headers = { 'content-type': 'application/json' };
      for (const path of ['/api/scheduler/jobs/submit', '/api/scheduler/jobs/submit']) {
        await fetch(server.http + path, { method: 'POST', headers, body: JSON.stringify(job) });
      }
      const body = JSON.stringify({ worker_id: 'w' });
      await fetch(`${server.http}/api/system/scheduler/leases/request`, { method: 'POST', headers, body });
    });
    after(async () => {
      await server.stop();
      await store.remove();
    });

    it('prints the figures of all submitters and of one', async () => {
      const all = await runCommand(['stats'], { LEASEHOLD_URL: server.http });
      expect([all.code, all.stderr]).to.deep.equal([0, '']);
      expect(all.stdout).to.match(/^capacity +total 100,.* used 7,/m);
      expect(all.stdout).to.match(/^jobs +queued 1,.* running 1,.* submitted last 24h 2,/m);
      expect(all.stdout).to.match(/^leases +active 1,.* expired last 24h 0/m);
      const other = await runCommand(['stats', '--addon-id', 'nobody'], { LEASEHOLD_URL: server.http });
      expect(other.stdout).to.match(/^jobs +queued 0,.* running 0,/m);
    });

    it("prints the server's answer as JSON", async () => {
      const { stdout } = await runCommand(['stats', '--json', '--addon-id', 'a b'], {
        LEASEHOLD_URL: server.http,
      });
      const told = JSON.parse(stdout);
      expect(told).to.nested.include({ addon_id: 'a b', 'jobs.queued': 1, 'leases.active': 1 });
    });

    it('prints a line a second, survives an absent server, and exits with 0 when stopped', async () => {
      const watching = await startProcess(['stats', '--watch'], { LEASEHOLD_URL: server.http });
      await until('a first line', () => watching.stdout.length > 0);
      expect(watching.stdout[0]).to.match(
        /^20\S+Z capacity\.total=100 .* jobs\.queued=1 .* leases\.active=1 /,
      );
      await server.stop();
      await until('a complaint', () => watching.stderr.length > 0);
      const ended = await runCommand(['stats', '--watch'], { LEASEHOLD_URL: server.http });
      expect([ended.code, ended.stdout], 'of one that begins meanwhile').to.deep.equal([1, '']);
      expect(ended.stderr).to.match(/^leasehold: there is no server at /);
      const lines = watching.stdout.length;
      server = await startServer(environment);
      await until('another line', () => watching.stdout.length > lines);
      watching.signal('SIGINT');
      const { code, signal } = await watching.exited();
      expect({ code, signal }).to.deep.equal({ code: 0, signal: null });
    });
  });
});
