import { onEveryEngine, type TestEngine } from './engines.ts';
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
      define({ name: 'redis', engine, start: (options) => startOn(redis, engine, options) });
    });
  });
}

/** A server that has found its Redis. */
async function startOn(
  redis: TestRedis,
  engine: TestEngine,
  { settings, ...more }: TestServerOptions = {},
): Promise<TestServer> {
  const server = await startTestServer(engine, { ...more, settings: { ...settings, redisUrl: redis.url } });
  await eventually('Redis is up', async () => ((await redisState(server)) === 'up' ? true : undefined));
  return server;
}

/** What `/readyz` says of Redis. */
export async function redisState(server: TestServer): Promise<string> {
  const response = await fetch(`${server.http}/readyz`);
  return ((await response.json()) as { redis: string }).redis;
}
