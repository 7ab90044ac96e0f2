import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Client, credentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import fc from 'fast-check';
import { StreamsById } from '../../src/rpc/grpc-garbage.ts';
import { watchProcess } from '../support/cleanup.ts';
import { echo } from './echo.ts';

const serverFile = fileURLToPath(new URL('garbage-server.ts', import.meta.url));
const atOnce = 32;

describe('the garbage of calls', () => {
  let server: ChildProcess;
  let client: Client;

  before(async () => {
    server = fork(serverFile, {
      execArgv: ['--expose-gc', '--max-semi-space-size=32', '--min-semi-space-size=32'],
    });
    await once(server, 'spawn');
    await watchProcess(server.pid as number);
    const [port] = await once(server, 'message');
    client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  });

  after(async () => {
    client?.close();
    if (server?.exitCode === null && server.connected) {
      server.kill();
      await once(server, 'exit');
    }
  });

  it('is cleared away with them, also after everything has been looked through once', async () => {
    await call(client, 2_000);
    server.send('watch');
    await once(server, 'message');
    await call(client, 20_000);
    server.send('tell');
    const [{ share, collections }] = await once(server, 'message');
    expect(collections).to.be.above(3);
    expect(share).to.be.below(0.15);
  });
});

describe('the streams of a session', () => {
  const id = fc.integer({ min: 1, max: 20 });
  const change = fc.oneof(
    fc.record({ set: id, to: fc.string() }),
    fc.record({ delete: id }),
    fc.constant({ clear: true } as const),
  );

  it('are kept as a map keeps them', () => {
    fc.assert(
      fc.property(fc.array(change, { maxLength: 60 }), (changes) => {
        const map = new Map<number, string>([[7, 'was there before']]);
        const streams = new StreamsById(map);
        for (const one of changes) {
          for (const each of [map, streams]) {
            if ('set' in one) expect(each.set(one.set, one.to)).to.equal(each);
            else if ('clear' in one) each.clear();
          }
          if ('delete' in one) expect(streams.delete(one.delete)).to.equal(map.delete(one.delete));
          expect(told(streams)).to.deep.equal(told(map));
        }
      }),
    );
  });

  it('are gone through as long as they are there', () => {
    const streams = new StreamsById([
      [1, 'first'],
      [2, 'second'],
      [3, 'third'],
    ]);
    const seen: string[] = [];
    streams.forEach((stream, _, all) => {
      seen.push(stream);
      all.delete(2);
    });
    expect(seen).to.deep.equal(['first', 'third']);
  });
});

function told(streams: Map<number, string>): unknown {
  const seen: [number, string][] = [];
  streams.forEach((stream, id) => {
    seen.push([id, stream]);
  });
  const byId = (entries: Iterable<[number, string]>) => [...entries].sort(([one], [other]) => one - other);
  return {
    size: streams.size,
    entries: byId(streams),
    seen: byId(seen),
    keys: [...streams.keys()].sort((one, other) => one - other),
    values: [...streams.values()].sort(),
    found: Array.from({ length: 22 }, (_, id) => [streams.has(id), streams.get(id)]),
  };
}

/** So many calls, some at once. */
async function call(client: Client, count: number): Promise<void> {
  const { path, requestSerialize, responseDeserialize } = echo.echo;
  const said = Buffer.from('said');
  const one = () =>
    new Promise<void>((resolve, reject) => {
      client.makeUnaryRequest(path, requestSerialize, responseDeserialize, said, (error) =>
        error ? reject(error) : resolve(),
      );
    });
  let begun = 0;
  const lane = async () => {
    while (begun++ < count) await one();
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}
