/**
 * A server in this process, on free ports and a fresh database, for tests that come in through the front door. What a
 * test says to it goes through a real socket.
 */
import { type Config, readConfig } from '../../src/config.ts';
import type { ReceiveBudget } from '../../src/lib/http/receive-budget.ts';
import { createLog, type LogFields } from '../../src/lib/log.ts';
import { type RunningServer, startServer } from '../../src/server.ts';
import type { Database } from '../../src/store/database.ts';
import { openConfigured } from '../../src/store/open.ts';
import type { TestEngine, TestStore } from './engines.ts';

export interface LogLine extends LogFields {
  level: string;
  msg: string;
}

export interface TestServer {
  /** For example `http://127.0.0.1:41234`. */
  http: string;
  /** For example `127.0.0.1:41235`. */
  grpc: string;
  running: RunningServer;
  store: TestStore;
  /** The server's own door to it, for tests that move its clock. */
  database: Database;
  /** What the server has logged at 'warn' or above. */
  complaints: LogLine[];
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface TestServerOptions {
  settings?: Partial<Config>;
  /** Another server's database, to share it; it is left in place when this server stops. */
  shared?: TestStore;
  /** The process's where left out. */
  receiving?: ReceiveBudget;
}

export async function startTestServer(
  engine: TestEngine,
  { settings = {}, shared, receiving }: TestServerOptions = {},
): Promise<TestServer> {
  const store = shared ?? (await engine.create());
  const complaints: LogLine[] = [];
  const write = (line: string) => void complaints.push(JSON.parse(line) as LogLine);
  const config: Config = {
    ...readConfig({}, {}),
    databaseUrl: store.options.url,
    dataDir: store.options.dataDir,
    poolMax: store.options.poolMax,
    httpAddr: { host: '127.0.0.1', port: 0 },
    grpcAddr: { host: '127.0.0.1', port: 0 },
    ...settings,
  };
  const log = createLog({ level: 'warn', human: false, write });
  const opening = openConfigured(config, log);
  const running = await startServer(config, log, opening, undefined, receiving).catch(
    async (error: unknown) => {
      if (!shared) await store.remove();
      throw error;
    },
  );
  const stop = async () => {
    await running.stop();
    if (!shared) await store.remove();
  };
  return {
    http: `http://${running.http.host}:${running.http.port}`,
    grpc: `${running.grpc.host}:${running.grpc.port}`,
    running,
    store,
    database: await opening,
    complaints,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** Asks again until there is an answer, or says after a while what it has been waiting for. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | undefined>,
  patienceMs = 15_000,
): Promise<T> {
  const deadline = performance.now() + patienceMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (performance.now() > deadline) throw new Error(`waited ${patienceMs} ms in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
