/**
 * The guarantee: every server on a database lists the workers of all servers, and drops those of a dead one
 * in time.
 */
import { expect } from 'chai';
import { onEveryEngine } from '../support/engines.ts';
import { findPostgres } from '../support/postgres.ts';
import { startServer, until } from '../support/process.ts';
import { startTestServer } from '../support/server.ts';
import { connect, createPostgresStore } from '../support/server-clients.ts';
import { WorkClient } from '../support/work-streams.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies of many shapes
type Workers = { worker_id: string; servers: any[] }[];

if (findPostgres()) {
  describe('several servers on one PostgreSQL', () => {
    it('lists the workers of all servers, without those of a server that was killed (B11)', async () => {
      await using store = await createPostgresStore();
      const [first, second] = await Promise.all([startServer(store.env), startServer(store.env)]);
      await using _first = first;
      await using _second = second;
      using client = connect(second);
      using one = new WorkClient(first.grpc, 'one');
      using two = new WorkClient(second.grpc, 'two');
      one.wants(1);
      two.wants(2);
      const list = async (): Promise<Workers> =>
        (await client.rest('GET', '/api/scheduler/workers')).body.workers;
      const names = async () => (await list()).map(({ worker_id }) => worker_id);
      await until('both to be listed', async () => (await names()).length === 2);
      expect((await list()).map(({ servers }) => servers[0].pid)).to.deep.equal([first.pid, second.pid]);

      await first.kill();
      expect(await names(), 'for half a minute').to.deep.equal(['one', 'two']);
      // Rows of half a minute ago have expired. The live server writes its rows again when they are due.
      await store.query(
        `update workers set expires_at = expires_at - interval '30 s' where worker_id = 'one'`,
      );
      expect(await names()).to.deep.equal(['two']);
    });

    it('lists a worker with each server that it is connected to', async () => {
      await using store = await createPostgresStore();
      const [first, second] = await Promise.all([startServer(store.env), startServer(store.env)]);
      await using _first = first;
      await using _second = second;
      using client = connect(first);
      using one = new WorkClient(first.grpc, 'w');
      using two = new WorkClient(second.grpc, 'w');
      one.wants(1);
      two.wants(2);
      await until('both to be listed', async () => {
        const { workers } = (await client.rest('GET', '/api/scheduler/workers')).body as { workers: Workers };
        return workers.length === 1 && workers[0]?.servers.length === 2;
      });
    });
  });
}

onEveryEngine((engine) => {
  it(`removes its workers from the list when it stops (${engine.name})`, async () => {
    const store = await engine.create();
    try {
      const server = await startTestServer(engine, { shared: store });
      using worker = new WorkClient(server.grpc, 'w');
      worker.wants(1);
      const count = async () => (await server.database.query('select worker_id from workers', [])).length;
      await until('it to be listed', async () => (await count()) === 1);
      await server.stop();
      const again = await startTestServer(engine, { shared: store });
      expect(await again.database.query('select worker_id from workers', [])).to.deep.equal([]);
      await again.stop();
    } finally {
      await store.remove();
    }
  });
});
