import { fork } from 'node:child_process';
import { once } from 'node:events';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Client, credentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import fc from 'fast-check';
import { Http2StreamMap, replaceSessionStreams } from '../../../src/rpc/grpc/http2-stream-map.ts';
import { forgetProcess, watchProcess } from '../../support/cleanup.ts';
import { echo } from './echo.ts';

const serverFile = fileURLToPath(new URL('session-server.ts', import.meta.url));
/** The flags with which the server starts. */
const flags = ['--no-allocation-site-pretenuring'];
const atOnce = 32;

describe('garbage collection of calls', () => {
  it('frees calls in young-generation collections, also after a full collection', async () => {
    const [left, leftAsItIs] = await Promise.all([leftBehind('replaced', flags), leftBehind('as it is', [])]);
    expect(left).to.be.below(leftAsItIs / 2);
  });

  /** The share of the calls' allocations that young-generation collections leave behind on such a server. */
  async function leftBehind(how: string, more: readonly string[]): Promise<number> {
    const execArgv = ['--expose-gc', '--max-semi-space-size=32', '--min-semi-space-size=32', ...more];
    const server = fork(serverFile, [how], { execArgv });
    const ended = once(server, 'exit');
    await once(server, 'spawn');
    await watchProcess(server.pid as number);
    try {
      const [port] = await once(server, 'message');
      const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
      await call(client, 2_000);
      server.send('watch');
      await once(server, 'message');
      await call(client, 20_000);
      client.close();
      server.send('tell');
      const [{ share, collections }] = await once(server, 'message');
      expect(collections).to.be.above(3);
      return share;
    } finally {
      server.kill();
      await ended;
      await forgetProcess(server.pid as number);
    }
  }
});

describe('a session with replaced streams', () => {
  let server: http2.Http2Server;
  let session: http2.ServerHttp2Session;
  let open = 0;

  before(async () => {
    replaceSessionStreams();
    server = http2.createServer();
    server.on('session', (one) => {
      session = one;
    });
    server.on('stream', (stream, headers) => {
      open++;
      stream.on('error', () => {});
      stream.on('close', () => {
        open--;
        server.emit('left');
      });
      stream.respond({ ':status': 200 });
      if (headers[':path'] === '/ends') stream.end();
      server.emit('came');
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });

  after(() => new Promise((resolve) => server.close(resolve)));

  it('serves one stream after the other', async () => {
    const client = await connected();
    for (let i = 0; i < 100; i++) await once(asked(client, '/ends'), 'close');
    await until('left', () => open === 0);
    expect(streamsOf(session)).to.be.instanceOf(Http2StreamMap).with.property('size', 0);
    client.destroy();
    await once(session, 'close');
  });

  it('destroys its streams when it is destroyed', async () => {
    const client = await connected();
    for (let i = 0; i < 20; i++) asked(client, '/stays');
    await until('came', () => open === 20);
    session.destroy();
    await until('left', () => open === 0);
  });

  it('destroys its streams when the client disconnects', async () => {
    const client = await connected();
    for (let i = 0; i < 20; i++) asked(client, '/stays');
    await until('came', () => open === 20);
    client.destroy();
    await until('left', () => open === 0);
  });

  it('waits for its streams when it closes', async () => {
    const client = await connected();
    const streams = [asked(client, '/stays'), asked(client, '/stays')];
    await until('came', () => open === 2);
    const closed = once(session, 'close');
    session.close();
    for (const [i, stream] of streams.entries()) {
      expect(session.destroyed).to.equal(false);
      stream.close();
      await until('left', () => open === 1 - i);
    }
    await closed;
  });

  async function connected(): Promise<http2.ClientHttp2Session> {
    const { port } = server.address() as AddressInfo;
    const came = once(server, 'session');
    const client = http2.connect(`http://127.0.0.1:${port}`);
    client.on('error', () => {});
    await came;
    return client;
  }

  function asked(client: http2.ClientHttp2Session, path: string): http2.ClientHttp2Stream {
    const stream = client.request({ ':path': path });
    stream.on('error', () => {});
    return stream.resume();
  }

  async function until(event: string, isSo: () => boolean): Promise<void> {
    while (!isSo()) await once(server, event);
  }
});

/** The property in which Node stores the streams. */
function streamsOf(session: http2.Http2Session): unknown {
  const key = Object.getOwnPropertySymbols(session).find(({ description }) => description === 'state');
  return (session as unknown as Record<symbol, { streams: unknown }>)[key as symbol]?.streams;
}

describe('the map of session streams', () => {
  const id = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 2 ** 31 - 1 }));
  const change = fc.oneof(
    fc.record({ set: id, to: fc.string() }),
    fc.record({ delete: id }),
    fc.constant({ clear: true } as const),
  );

  it('stores streams as a Map does', () => {
    fc.assert(
      fc.property(fc.array(change, { maxLength: 60 }), (changes) => {
        const map = new Map<number, string>([[7, 'was there before']]);
        const streams = new Http2StreamMap(map);
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

  it('iterates over streams as long as they exist', () => {
    const streams = new Http2StreamMap([
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

/** Sends the given number of calls, some at once. */
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
