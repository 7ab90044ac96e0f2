/**
 * Two tenants play random calls by every way in. All names and payloads of one of them carry a canary. No
 * byte of it, and none of its ids, may be in any header, answer, frame or trailer to the other.
 */
import { randomBytes } from 'node:crypto';
import type { JsonObject } from '@bufbuild/protobuf';
import { credentials, Client as GrpcClient } from '@grpc/grpc-js';
import { expect } from 'chai';
import { onEveryEngine } from '../support/engines.ts';
import { createKey, type KeyedServer, startKeyedServer } from '../support/keys.ts';
import { eventually } from '../support/server.ts';
import { type Call, type OpenStream, openStream, play } from './canary.ts';
import { type Player, randomCall } from './canary-calls.ts';

const steps = 400;
const uuids = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** A small generator of random numbers, the same for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

describe('canaries', () => {
  onEveryEngine((engine) => {
    const seed = Number(process.env.LEASEHOLD_TEST_SEED ?? randomBytes(4).readUInt32BE(0));
    let server: KeyedServer;
    let client: GrpcClient;
    before(async () => {
      server = await startKeyedServer(engine, { settings: { capacityTotal: 20 } });
      client = new GrpcClient(server.grpc, credentials.createInsecure());
    });
    after(async () => {
      client.close();
      await server.stop();
    });

    const playerOf = async (name: string): Promise<Player & { headers: Record<string, string> }> => {
      const key = await createKey(server.database, {
        name,
        roles: ['submitter', 'worker', 'observer'],
        seesPayloads: true,
        scopes: {
          addon_ids: [name],
          streams: [`${name}-*`],
          job_types: [`${name}-*`],
          repositories: [`${name}/*`],
        },
        // Both may use the names of the other kind.
        workerIds: [`${name}-*`, 'w-*'],
      });
      return { name, headers: key.headers, ids: new Set() };
    };

    it(`never reach the other tenant, in ${steps} random calls with the seed ${seed}`, async function () {
      this.timeout(60_000);
      const random = randomOf(seed);
      const canary = `c4nary${seed.toString(36)}`;
      const watched = await playerOf(canary);
      const other = await playerOf('plain');
      await eventually('the server knows the keys', async () => {
        const { status } = await fetch(`${server.http}/api/access/whoami`, { headers: other.headers });
        return status === 200 || undefined;
      });
      const faces = { http: server.http, client };
      const requireClean = (text: string, asked: unknown, what: string) => {
        const words = `${what} (seed ${seed}, asked ${JSON.stringify(asked)})`;
        expect(text.includes(canary), `${words}: ${text.slice(0, 2_000)}`).to.equal(false);
        const said = JSON.stringify(asked);
        const leaked = (text.match(uuids) ?? []).filter((id) => watched.ids.has(id) && !said.includes(id));
        expect(leaked, `${words}: ${text.slice(0, 2_000)}`).to.deep.equal([]);
      };

      const open: [string, OpenStream][] = [];
      const keepOpen = (rpc: string, frame: Parameters<OpenStream['send']>[0]) => {
        const stream = openStream(client, rpc, other.headers);
        stream.send(frame);
        open.push([rpc, stream]);
        return stream;
      };
      keepOpen('FileLeasesService/WatchFileLeases', { repository: 'plain/app' });
      const credits: JsonObject[] = [{ jobs: 50 }, { jobs: 50, streams: ['plain-s'] }];
      keepOpen('LeasesService/StreamWork', { workerId: 'w-1', credits });
      const beats = keepOpen('LeasesService/StreamHeartbeats', { owners: [{ ownerId: 'w-1' }] });

      const ways = new Set<string>();
      let answered = 0;
      for (let step = 0; step < steps; step++) {
        const isWatched = random() < 0.45;
        const [actor, victim] = isWatched ? [watched, undefined] : [other, watched];
        const call: Call = randomCall(random, actor, victim);
        ways.add(call.over === 'rest' ? call.path.replaceAll(uuids, 'ID') : `${call.over} ${call.rpc}`);
        const text = await play(faces, call, actor.headers);
        if (text.includes('"code"') || text.includes('_not_found')) answered++;
        if (isWatched) for (const id of text.match(uuids) ?? []) watched.ids.add(id);
        else {
          requireClean(text, call, 'an answer');
          for (const id of text.match(uuids) ?? []) if (!watched.ids.has(id)) other.ids.add(id);
        }
        const stolen = [...watched.ids].at(Math.floor(random() * watched.ids.size));
        if (stolen && step % 5 === 0) beats.send({ heartbeats: [{ leaseId: stolen, workerId: 'w-1' }] });
      }
      const told = [...watched.ids];
      for (const [rpc, stream] of open) {
        await stream.close();
        // The stream of heartbeats answers with the ids that it was sent.
        requireClean(stream.text(), rpc.endsWith('StreamHeartbeats') ? told : rpc, rpc);
        expect(stream.text().length, rpc).to.be.greaterThan(0);
      }
      expect(watched.ids.size, 'ids of the watched tenant').to.be.greaterThan(10);
      expect(other.ids.size, 'ids of the other tenant').to.be.greaterThan(10);
      expect(ways.size, 'ways in').to.be.greaterThan(60);
      expect(answered, 'refusals').to.be.greaterThan(10);
    });
  });
});
