import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { frame, HeartbeatClient } from '../../support/heartbeat-streams.ts';
import { leasedJob, plenty } from '../../support/leases-api.ts';
import { startTestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('a server that stops during a heartbeat stream', () => {
    it('stops without waiting for a client that never ends its side', async () => {
      const server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
      const { lease } = await leasedJob(server, {}, {});
      const stream = new HeartbeatClient(server.grpc);
      try {
        stream.send(frame([{ leaseId: lease.lease_id, workerId: 'worker-1' }]));
        await stream.hears(1);
        const began = performance.now();
        await server.stop();
        // Calls in progress get five seconds; there is none here.
        expect(performance.now() - began).to.be.below(3_500);
        expect(stream.verdicts.at(-1)?.outcome.value).to.include({ drain: true });
      } finally {
        stream.close();
      }
    });
  });
});
