/** The guarantee: a server with Redis survives an outage of its database. */
import { expect } from 'chai';
import { findPostgres, startPostgres } from '../support/postgres.ts';
import { startServer, until } from '../support/process.ts';
import { describeWithRedis, startRedis } from '../support/redis.ts';
import { connect, createPostgresStore } from '../support/server-clients.ts';

const failedRound = 'streams could not be brought in line with the database';

if (findPostgres()) {
  describeWithRedis('a server with Redis', () => {
    it('keeps running while its database is away, and is ready again afterwards', async () => {
      const cluster = await startPostgres({ durable: false });
      await using redis = await startRedis();
      const store = await createPostgresStore(cluster);
      const settings = { ...store.env, REDIS_URL: redis.url, LEASEHOLD_LOG: 'debug' };
      await using server = await startServer(settings);
      using client = connect(server);
      const stateOf = async () => (await client.rest('GET', '/readyz')).body;
      try {
        await until('Redis is up', async () => (await stateOf()).redis === 'up');
        await client.jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1, stream: 's' });
        await cluster.kill();
        const failedRounds = () => server.log().filter(({ msg }) => msg === failedRound).length;
        await until('two rounds have failed', () => server.isOver || failedRounds() > 1, 30_000);
        expect(server.isOver, server.said()).to.equal(false);
        await cluster.restart();
        await until('ready', async () => (await client.rest('GET', '/readyz')).status === 200);
        expect((await server.stop()).code).to.equal(0);
      } finally {
        await server.kill();
        await cluster.stop();
      }
    }).timeout(90_000);
  });
}
