/** How the keep-alive process handles races that real agents seldom cause. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { keepAlive } from '../../src/agent/keepalive-daemon.ts';
import { lookUp, type ProcessFacts } from '../../src/agent/process-tree.ts';
import { SessionStore } from '../../src/agent/session-store.ts';
import { temporaryFolder } from '../support/cleanup.ts';

describe('the keep-alive process', () => {
  it("continues for a session that a new agent takes over while the old agent's owner ends", async () => {
    const notes = new SessionStore(await temporaryFolder('notes'));
    const asked: string[] = [];
    const server = createServer(({ url = '' }, response) => {
      asked.push(url);
      const { pid, started } = lookUp(process.pid) as ProcessFacts;
      if (url.endsWith('/end')) notes.write({ ...note, agent: { pid, started, name: 'claude' } });
      else notes.remove('s');
      response.end('{}');
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const gone = { pid: 2_147_483_646, started: 'long ago', name: 'claude' };
    const note = { owner_id: 's', url: `http://127.0.0.1:${port}`, agent: gone, since: '' };
    notes.write(note);
    await keepAlive('s', notes);
    server.close();
    server.closeAllConnections();
    expect(asked).to.deep.equal(['/api/files/owners/s/end', '/api/files/heartbeat']);
  });
});
