import { onEveryEngine, type TestEngine, type TestStore } from './engines.ts';
import { describeWithRedis, startRedis, type TestRedis } from './redis.ts';
import { eventually, startTestServer, type TestServer, type TestServerOptions } from './server.ts';

/** What carries the messages of streams. */
export interface TestTransport {
  name: 'database' | 'redis';
  engine: TestEngine;
  /** A server with this transport. */
  start(options?: TestServerOptions): Promise<TestServer>;
}

/** A describe block for each transport, on every engine, with the same tests in it. */
export function onEveryTransport(define: (transport: TestTransport) => void): void {
  onEveryEngine((engine) => {
    describe('with the database alone', () =>
      define({ name: 'database', engine, start: (options) => startTestServer(engine, options) }));
    describeWithRedis('with Redis', () => {
      let redis: TestRedis;
      before(async () => {
        redis = await startRedis();
      });
      after(() => redis.stop());
      const places = new Map<TestStore, number>();
      define({ name: 'redis', engine, start: (options) => startOn(redis, places, engine, options) });
    });
  });
}

/** A server that has found its Redis. */
async function startOn(
  redis: TestRedis,
  places: Map<TestStore, number>,
  engine: TestEngine,
  { settings, shared }: TestServerOptions = {},
): Promise<TestServer> {
  // Each database has a Redis database of its own.
  const place = (shared && places.get(shared)) ?? places.size;
  const redisUrl = `${redis.url}/${place}`;
  const server = await startTestServer(engine, {
    settings: { ...settings, redisUrl },
    ...(shared ? { shared } : {}),
  });
  places.set(server.store, place);
  await eventually('Redis is up', async () => ((await redisState(server)) === 'up' ? true : undefined));
  return server;
}

/** What `/readyz` says of Redis. */
export async function redisState(server: TestServer): Promise<string> {
  const response = await fetch(`${server.http}/readyz`);
  return ((await response.json()) as { redis: string }).redis;
}
