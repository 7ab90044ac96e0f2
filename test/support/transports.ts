import { onEveryEngine, type TestEngine } from './engines.ts';
import { startTestServer, type TestServer, type TestServerOptions } from './server.ts';

/** What carries the messages of streams: a describe block for each, on every engine, with the same tests in it. */
export interface TestTransport {
  name: 'database' | 'redis';
  engine: TestEngine;
  /** A server with this transport. */
  start(options?: TestServerOptions): Promise<TestServer>;
}

export function onEveryTransport(define: (transport: TestTransport) => void): void {
  onEveryEngine((engine) => {
    describe('with the database alone', () =>
      define({ name: 'database', engine, start: (options) => startTestServer(engine, options) }));
  });
}
