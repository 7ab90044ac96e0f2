import { expect } from 'chai';
import { RedisConnection } from '../../../src/transport/redis/connection.ts';
import { describeWithRedis, startRedis, type TestRedis } from '../../support/redis.ts';

describeWithRedis('RedisConnection', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startRedis();
  });
  after(() => redis.stop());

  it('does not mistake a pause of its own process for one of Redis', async () => {
    const reasons: Error[] = [];
    const link = new RedisConnection({
      url: redis.url,
      name: 'a-test',
      onDown: (reason) => reasons.push(reason),
    });
    await link.start();
    try {
      const asked = link.run((client) => client.ping(), 50);
      // The request is sent, and then the process receives nothing for longer than Redis' timeout.
      await new Promise((resolve) => setImmediate(resolve));
      const until = performance.now() + 200;
      while (performance.now() < until);
      expect(await asked).to.equal('PONG');
      expect([reasons, link.isUp]).to.deep.equal([[], true]);
    } finally {
      await link.stop();
    }
  });
});
