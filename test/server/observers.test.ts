/** An observer without `--payloads` gets no payload, result or error, by any route or RPC that reads. */
import { fromJson, toBinary } from '@bufbuild/protobuf';
import { ValueSchema } from '@bufbuild/protobuf/wkt';
import { credentials, Client as GrpcClient, Metadata } from '@grpc/grpc-js';
import { expect } from 'chai';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { KeysService } from '../../gen/leasehold/v1/keys_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';
import { connectLeasehold, FinalStatus } from '../../src/client/grpc-client.ts';
import { routeAccess } from '../../src/domain/access/methods.ts';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { eventually } from '../support/server.ts';

const canary = 'yellow-bird';
const services = [JobsService, LeasesService, StatsService, FileLeasesService, KeysService];
const reading = services
  .flatMap((service) => service.methods)
  .filter(({ name }) => /^(Get|List|Watch|Explain|Diagnose)/.test(name));

describe('an observer', () => {
  onEveryEngine((engine) => {
    let server: KeyedServer;
    let grpc: GrpcClient;
    let blind: TestKey;
    let seeing: TestKey;
    /** A job that has ended, one that was retried after its end, and the lease of each. */
    const jobs: { jobId: string; leaseId: string }[] = [];

    before(async () => {
      server = await startKeyedServer(engine);
      grpc = new GrpcClient(server.grpc, credentials.createInsecure());
      blind = await createKey(server.database, { name: 'blind', roles: ['observer'] });
      seeing = await createKey(server.database, { name: 'seeing', roles: ['observer'], seesPayloads: true });
      const client = connectLeasehold(server.grpc, { apiKey: server.admin.text });
      const failed = async (workerId: string) => {
        const wish = { addonId: 'a', jobType: 't', costUnits: 1, maxAttempts: 1 };
        const { job } = await client.jobs.submitJob({ ...wish, payload: { text: canary } });
        const { outcome } = await client.leases.acquireLease({ workerId });
        if (outcome.case !== 'granted') throw new Error('no lease was granted');
        const leaseId = outcome.value.lease?.leaseId ?? '';
        await client.leases.heartbeat({ leaseId, workerId });
        await client.leases.releaseLease({
          leaseId,
          workerId,
          status: FinalStatus.FAILED,
          resultData: fromJson(ValueSchema, { text: canary }),
          error: { message: canary, code: canary, retryable: false },
          metrics: { text: canary },
        });
        jobs.push({ jobId: job?.jobId ?? '', leaseId });
        return job?.jobId ?? '';
      };
      await failed('w-1');
      await client.jobs.retryJob({ jobId: await failed('w-2') });
      client.close();
      await eventually('the server knows the keys', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers: seeing.headers });
        return status === 200 || undefined;
      });
    });
    after(async () => {
      grpc.close();
      await server.stop();
    });

    const overRest = async ({ headers }: TestKey): Promise<string[]> => {
      const told: string[] = [];
      for (const route of Object.keys(routeAccess).filter((one) => one.startsWith('GET ')))
        for (const { jobId, leaseId } of jobs) {
          const path = route.slice(4).replace('{job_id}', jobId).replace('{lease_id}', leaseId);
          const response = await fetch(`${server.http}${path}`, { headers });
          if ((await response.text()).includes(canary) && !told.includes(route)) told.push(route);
        }
      return told;
    };

    const overGrpc = async ({ headers }: TestKey): Promise<string[]> => {
      const told: string[] = [];
      const metadata = new Metadata();
      metadata.set('authorization', headers.authorization);
      for (const { parent, name, input } of reading)
        for (const target of jobs) {
          const names = input.fields.map(({ localName }) => localName);
          const fields = Object.entries(target).filter(([field]) => names.includes(field));
          // An explanation is of a job or of a lease.
          const wishes = name === 'Explain' || name === 'ListLeases' ? fields.map((one) => [one]) : [fields];
          for (const wish of wishes) {
            const bytes = Buffer.from(toBinary(input, fromJson(input, Object.fromEntries(wish))));
            const answer = await answerOf(`/${parent.typeName}/${name}`, bytes, metadata);
            if (answer.includes(canary) && !told.includes(name)) told.push(name);
          }
        }
      return told;
    };

    /** All messages of an answer that ends, and the first of one that goes on. */
    const answerOf = (path: string, bytes: Buffer, metadata: Metadata): Promise<string> =>
      new Promise((resolve) => {
        const asIs = (value: Buffer) => value;
        const options = { deadline: Date.now() + 10_000 };
        const stream = grpc.makeBidiStreamRequest(path, asIs, asIs, metadata, options);
        let text = '';
        stream.on('data', (message: Buffer) => {
          text += message.toString('latin1');
          if (/Watch/.test(path)) stream.cancel();
        });
        stream.on('error', () => resolve(text));
        stream.on('end', () => resolve(text));
        stream.write(bytes);
        stream.end();
      });

    it('gets no payload, result or error over REST', async () => {
      expect(await overRest(seeing)).to.include.members([
        'GET /api/scheduler/jobs',
        'GET /api/scheduler/jobs/{job_id}',
        'GET /api/scheduler/jobs/{job_id}/attempts',
        'GET /api/scheduler/jobs/{job_id}/events',
        'GET /api/scheduler/jobs/{job_id}/explain',
        'GET /api/scheduler/lease/{lease_id}',
        'GET /api/scheduler/lease/{lease_id}/explain',
      ]);
      expect(await overRest(blind)).to.deep.equal([]);
    });

    it('gets no payload, result or error over gRPC', async () => {
      expect(await overGrpc(seeing)).to.include.members([
        'GetJob',
        'ListJobs',
        'ListJobEvents',
        'WatchJob',
        'GetLease',
        'ListLeases',
        'Explain',
      ]);
      expect(await overGrpc(blind)).to.deep.equal([]);
    });
  });
});
