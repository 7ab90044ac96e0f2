/** Clients of a server process and its database, all of which end with `await using`. */
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import pg from 'pg';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { createLog } from '../../src/lib/log.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open.ts';
import { temporaryFolder } from './cleanup.ts';
import type { TestEngine, TestStore } from './engines.ts';
import { sharedPostgres, type TestCluster } from './postgres.ts';

/** Longer than any server may take to answer; what takes longer is a hang. */
export const answerLimitMs = 20_000;

export interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of many shapes, and fail where they differ.
  body: any;
}

export type Client = ReturnType<typeof connect>;

/** One gRPC connection and one pool of HTTP connections that are kept alive. */
export function connect(server: { http: string; grpc: string }) {
  const baseUrl = `http://${server.grpc}`;
  const sessionManager = new Http2SessionManager(baseUrl);
  const transport = createGrpcTransport({ baseUrl, sessionManager, defaultTimeoutMs: answerLimitMs });
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const close = () => {
    sessionManager.abort();
    agent.destroy();
  };
  return {
    jobs: createClient(JobsService, transport),
    rest: (method: string, path: string, body?: unknown) => rest(agent, server.http + path, method, body),
    close,
    [Symbol.dispose]: close,
  };
}

function rest(agent: Agent, url: string, method: string, body: unknown): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? '' : JSON.stringify(body);
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    const signal = AbortSignal.timeout(answerLimitMs);
    const sent = request(url, { agent, method, headers, signal }, (response) => {
      let said = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => {
        said += part;
      });
      response.on('error', reject);
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, body: said === '' ? null : JSON.parse(said) }),
      );
    });
    sent.on('error', reject);
    sent.end(text);
  });
}

/** The code of a gRPC error in words, such as 'Unavailable'. */
export const codeOf = (error: unknown): string => Code[ConnectError.from(error).code];

/** A fresh database that is deleted when it goes out of scope. */
export async function createStore(
  engine: TestEngine,
  how?: { empty?: boolean },
): Promise<TestStore & AsyncDisposable> {
  const store = await engine.create(how);
  return { ...store, [Symbol.asyncDispose]: () => store.remove() };
}

/** Opens a store from within the tests. An embedded one must have no server at that time. */
export async function openStore(store: TestStore): Promise<Database & AsyncDisposable> {
  const database = await openDatabase(store.options);
  return Object.assign(database, { [Symbol.asyncDispose]: () => database.close() });
}

/** Settings of a server with an embedded database in a directory that is not there yet. */
export async function emptyDirectory(): Promise<Record<string, string>> {
  return { LEASEHOLD_DATA_DIR: join(await temporaryFolder('server'), 'data'), DATABASE_URL: '' };
}

export interface PostgresStore extends TestStore, AsyncDisposable {
  cluster: TestCluster;
  name: string;
  url: string;
  /** One statement; its rows as text, columns parted by '|'. */
  query(sql: string): Promise<string>;
}

/** An empty database on a PostgreSQL: the one that all tests share, unless another is given. */
export async function createPostgresStore(given?: TestCluster): Promise<PostgresStore> {
  const cluster = given ?? (await sharedPostgres());
  const name = await cluster.createDatabase();
  const url = cluster.url(name);
  const remove = () => cluster.dropDatabase(name);
  return {
    cluster,
    name,
    url,
    options: { url, dataDir: '', poolMax: 4, log: createLog({ level: 'silent', human: false }) },
    env: { DATABASE_URL: url },
    query: (sql) => cluster.query(sql, name),
    remove,
    [Symbol.asyncDispose]: remove,
  };
}

/** A connection of the test's own, on which it can hold locks. */
export async function openSession(url: string): Promise<pg.Client & AsyncDisposable> {
  const session = new pg.Client({ connectionString: url, application_name: 'test' });
  await session.connect();
  return Object.assign(session, { [Symbol.asyncDispose]: () => session.end() });
}
