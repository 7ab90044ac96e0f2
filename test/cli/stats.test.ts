/** `leasehold stats`, against a server that answers as the contract's example does. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { runCommand, startProcess, until } from '../support/process.ts';

const example = {
  capacity: { total: 100, used: 60, reserved: 0 },
  jobs: { queued: 12, running: 2, failed_last_24h: 1 },
  leases: { active: 2, expired_last_24h: 1, 'new one': 7 },
  ts: '2025-12-28T20:15:00Z',
};

describe('leasehold stats', () => {
  let server: Server;
  let url: string;
  let asked: string[];
  let isAway: boolean;
  before(async () => {
    server = createServer((request, response) => {
      asked.push(request.url ?? '');
      response.writeHead(isAway ? 503 : 200, { 'content-type': 'application/json' });
      const refusal = { detail: 'the database cannot be reached', code: 'unavailable' };
      response.end(JSON.stringify(isAway ? refusal : example));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  beforeEach(() => {
    asked = [];
    isAway = false;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });

  it('shows the figures that it knows, and whatever else there is in a group', async () => {
    const { code, stdout, stderr } = await runCommand(['stats', '--addon-id', 'a b'], { LEASEHOLD_URL: url });
    expect({ code, stdout, stderr }).to.deep.equal({
      code: 0,
      stdout: [
        'capacity  total 100   used 60   reserved 0',
        'jobs      queued 12   running 2   failed last 24h 1',
        'leases    active 2   expired last 24h 1   new one 7',
      ].join('\n'),
      stderr: '',
    });
    expect(asked).to.deep.equal(['/api/scheduler/stats/snapshot?addon_id=a+b']);
  });

  it('hands the answer on as JSON', async () => {
    const { stdout } = await runCommand(['stats', '--json'], { LEASEHOLD_URL: url });
    expect(JSON.parse(stdout)).to.deep.equal(example);
  });

  it('watches, a line a second, goes on where the server refuses for a while, and ends well when it is stopped', async () => {
    const watching = await startProcess(['stats', '--watch'], { LEASEHOLD_URL: url });
    await until('a first line', () => watching.stdout.length > 0);
    expect(watching.stdout[0]).to.match(
      /^20\S+Z capacity\.total=100 .* jobs\.queued=12 .* leases\.active=2 /,
    );
    isAway = true;
    await until('a complaint', () => watching.stderr.length > 0);
    expect(watching.stderr[0]).to.equal('leasehold: the database cannot be reached (unavailable)');
    const lines = watching.stdout.length;
    isAway = false;
    await until('another line', () => watching.stdout.length > lines);
    watching.signal('SIGINT');
    const { code, signal } = await watching.exited();
    expect({ code, signal }).to.deep.equal({ code: 0, signal: null });
  });

  it('ends with 1 where there is nothing to watch from the beginning', async () => {
    isAway = true;
    const { code, stdout, stderr } = await runCommand(['stats', '--watch'], { LEASEHOLD_URL: url });
    expect([code, stdout]).to.deep.equal([1, '']);
    expect(stderr).to.equal('leasehold: the database cannot be reached (unavailable)');
  });
});
