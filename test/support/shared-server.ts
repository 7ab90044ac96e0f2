/**
 * Servers that several describe blocks share, because starting one takes longer than most of their tests. Those that
 * ask for the same settings on the same engine get the same server: it starts with the first of them and stops with
 * the last, or at the end of the run where some of them are left out of it.
 */
import { expect } from 'chai';
import type { Config } from '../../src/config.ts';
import type { TestEngine } from './engines.ts';
import { startTestServer, type TestServer } from './server.ts';

interface Shared {
  users: number;
  starting: Promise<TestServer> | undefined;
}

const servers = new Map<string, Shared>();

export interface ServerShare {
  start(): Promise<TestServer>;
  leave(): Promise<void>;
}

/** To be asked for while tests are defined, so that it is known how many there are that will use it. */
export function shareServer(engine: TestEngine, settings: Partial<Config>): ServerShare {
  const key = JSON.stringify([engine.name, settings]);
  const shared = servers.get(key) ?? { users: 0, starting: undefined };
  servers.set(key, shared);
  shared.users++;
  return {
    start() {
      shared.starting ??= startTestServer(engine, { settings });
      return shared.starting;
    },
    async leave() {
      if (--shared.users === 0) await stop(shared);
    },
  };
}

/**
 * Hands a shared server to a describe block before its first test, and holds the server to no complaint in each. Stands before
 * the block's own hooks.
 */
export function holdSharedServer(
  engine: TestEngine,
  settings: Partial<Config>,
  hold: (server: TestServer) => void,
): void {
  const share = shareServer(engine, settings);
  let server: TestServer;
  before(async () => {
    server = await share.start();
    hold(server);
  });
  afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
  after(() => share.leave());
}

async function stop(shared: Shared): Promise<void> {
  const { starting } = shared;
  shared.starting = undefined;
  await (await starting)?.stop();
}

after(async () => {
  for (const shared of servers.values()) await stop(shared);
});
