import { create, type DescEnum, toBinary } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { errorFromJsonBytes } from '@connectrpc/connect/protocol-connect';
import { credentials, Client as GrpcClient, Metadata, type ServiceError } from '@grpc/grpc-js';
import { expect } from 'chai';
import {
  JobState,
  JobStateSchema,
  type OnDuplicate,
  OnDuplicateSchema,
  type Priority,
  PrioritySchema,
  SubmitJobRequestSchema,
} from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { newAddon, submit } from '../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { expectRpcError, failure, fromGrpc, pathOf, wires } from '../support/wires.ts';

const least = { addonId: 'a', jobType: 't', costUnits: 1 };

/** A request whose payload is a list within lists. */
function nestedRequest(levels: number): Buffer {
  const varint = (value: number): number[] =>
    value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(value >>> 7)];
  const field = (number: number, length: number) => Buffer.from([(number << 3) | 2, ...varint(length)]);
  const heads: Buffer[] = [];
  let length = 0;
  // From the inside out: a Value with a list_value, which has one value.
  for (let level = 0; level < levels; level++) {
    for (const number of [1, 6]) {
      const head = field(number, length);
      heads.push(head);
      length += head.length;
    }
  }
  const name = Buffer.from([0x0a, 1, 0x70]);
  const value = field(2, length);
  const entry = field(1, name.length + value.length + length);
  const payload = field(6, entry.length + name.length + value.length + length);
  const rest = toBinary(SubmitJobRequestSchema, create(SubmitJobRequestSchema, least));
  return Buffer.concat([rest, payload, entry, name, value, ...heads.reverse()]);
}

async function postConnect(
  server: TestServer,
  type: string,
  body: Uint8Array | string,
): Promise<ConnectError> {
  const response = await fetch(`${server.http}${pathOf('SubmitJob')}`, {
    method: 'POST',
    headers: { 'content-type': type, 'connect-protocol-version': '1' },
    body: typeof body === 'string' ? body : new Uint8Array(body),
  });
  const bytes = new Uint8Array(await response.arrayBuffer());
  expect(response.status, new TextDecoder().decode(bytes)).to.be.within(400, 499);
  const unreadable = new ConnectError('the answer is not an error in JSON', Code.Unknown);
  return errorFromJsonBytes(bytes, undefined, unreadable);
}

/** gRPC-Web sends its status in headers, or in a last frame that resembles headers. */
async function postGrpcWeb(
  server: TestServer,
  message: Uint8Array,
): Promise<{ code: Code; message: string }> {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  const response = await fetch(`${server.http}${pathOf('SubmitJob')}`, {
    method: 'POST',
    headers: { 'content-type': 'application/grpc-web+proto', 'x-grpc-web': '1' },
    body: new Uint8Array(Buffer.concat([head, message])),
  });
  const trailer = Buffer.from(await response.arrayBuffer()).toString();
  const told = (name: string) =>
    response.headers.get(name) ?? new RegExp(`${name}: ?(.*)\\r\\n`).exec(trailer)?.[1] ?? '';
  return { code: Number(told('grpc-status')), message: decodeURIComponent(told('grpc-message')) };
}

onEveryEngine((engine) => {
  describe('invalid messages of RPCs', () => {
    let server: TestServer;
    let grpc: GrpcClient;
    before(async () => {
      server = await startTestServer(engine);
      grpc = new GrpcClient(server.grpc, credentials.createInsecure());
    });
    afterEach(async () => {
      await submit(server, {});
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(async () => {
      grpc.close();
      await server.stop();
    });

    const sendGrpc = (bytes: Buffer): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const done = (error: ServiceError | null, value?: unknown) =>
          error ? reject(fromGrpc(error)) : resolve(value);
        const same = (any: Buffer) => any;
        grpc.makeUnaryRequest(pathOf('SubmitJob'), same, same, bytes, new Metadata(), {}, done);
      });

    const undecodable: Record<string, Buffer> = {
      'is no protobuf': Buffer.from('ffffffffffffffffffffff', 'hex'),
      'is cut off': Buffer.from('0a7f61', 'hex'),
      'has text that is not UTF-8': Buffer.from('0a02ffff', 'hex'),
      'has a group that never ends': Buffer.from('0b0b0b', 'hex'),
      'has a field that is number 0': Buffer.from('0001', 'hex'),
      'is nested 5,000 levels deep': nestedRequest(5_000),
    };
    for (const [how, bytes] of Object.entries(undecodable)) {
      it(`answers INVALID_ARGUMENT over gRPC if the message ${how}`, async () => {
        expectRpcError(await failure(sendGrpc(bytes)), Code.InvalidArgument, 'invalid_request');
      });

      it(`answers invalid_argument over Connect in binary if the message ${how}`, async () => {
        const error = await postConnect(server, 'application/proto', bytes);
        expectRpcError(error, Code.InvalidArgument, 'invalid_request');
      });

      it(`answers INVALID_ARGUMENT over gRPC-Web if the message ${how}`, async () => {
        const { code, message } = await postGrpcWeb(server, bytes);
        expect(Code[code], message).to.equal(Code[Code.InvalidArgument]);
        expect(message).to.match(/^invalid_request: ./);
      });
    }

    const json = (fields: string) => `{"addonId":"a","jobType":"t","costUnits":1${fields}}`;
    const badJson: Record<string, [string, string]> = {
      'is cut off': ['{"addonId":', 'body'],
      'is a list': ['[]', 'body'],
      'is null': ['null', 'body'],
      'has text for a number': [json(',"maxAttempts":"many"'), 'max_attempts'],
      'has a number for text': [json(',"stream":1'), 'stream'],
      'has a number that does not fit': [json(',"maxAttempts":2147483648'), 'max_attempts'],
      'has half a number': [json(',"maxAttempts":1.5'), 'max_attempts'],
      'has an endless number': [json(',"maxAttempts":1e400'), 'max_attempts'],
      'has a list for an object': [json(',"payload":[]'), 'payload'],
      'has a word that no enum has': [json(',"priority":"PRIORITY_SOON"'), 'priority'],
      'has an empty word for an enum': [json(',"priority":""'), 'priority'],
      'has an object for an enum': [json(',"priority":{}'), 'priority'],
      'has an unknown number for an enum': [json(',"priority":99'), 'priority'],
      'has an unknown word for the other enum': [json(',"on_duplicate":"constructor"'), 'on_duplicate'],
      'has a time that is none': [json(',"runAt":"tomorrow"'), 'run_at'],
      'is nested 10,000 levels deep': [
        json(`,"payload":{"p":${'['.repeat(10_000)}1${']'.repeat(10_000)}}`),
        'payload',
      ],
      'has a NUL in its payload': [json(',"payload":{"a":"\\u0000"}'), 'payload.a'],
      'has half of a surrogate pair': [json(',"payload":{"a":"\\ud800"}'), 'payload.a'],
      'has a payload with __proto__': [json(',"payload":{"__proto__":{"polluted":1}}'), 'payload'],
    };
    for (const [how, [body, field]] of Object.entries(badJson)) {
      it(`answers invalid_argument over Connect in JSON if the message ${how}`, async () => {
        const error = await postConnect(server, 'application/json', body);
        const metadata = expectRpcError(error, Code.InvalidArgument, 'invalid_request');
        expect(metadata.field, error.rawMessage).to.equal(field);
        expect({}).not.to.have.property('polluted');
      });
    }

    it('accepts a message with unknown fields and unknown enum names', async () => {
      const response = await fetch(`${server.http}${pathOf('SubmitJob')}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: json(',"colour":"red","priority":"PRIORITY_LOW","job":{"priority":"PRIORITY_SOON"}'),
      });
      expect(response.status, await response.text()).to.equal(200);
    });

    for (const [wire, connect] of Object.entries(wires)) {
      it(`refuses unknown enum numbers by field over ${wire}`, async () => {
        const connection = connect(server);
        try {
          const { jobs } = connection;
          const bad: [Promise<unknown>, string, DescEnum][] = [
            [jobs.submitJob({ ...least, priority: 99 as Priority }), 'priority', PrioritySchema],
            [jobs.submitJob({ ...least, onDuplicate: -1 as OnDuplicate }), 'on_duplicate', OnDuplicateSchema],
            [jobs.listJobs({ states: [JobState.QUEUED, 77 as JobState] }), 'states[1]', JobStateSchema],
            [jobs.updateJobStatus({ jobId: 'x', state: 50 as JobState }), 'state', JobStateSchema],
          ];
          const errors = await Promise.all(bad.map(([call]) => failure(call)));
          for (const [i, error] of errors.entries()) {
            const [, field, { values }] = bad[i] as (typeof bad)[number];
            const metadata = expectRpcError(error, Code.InvalidArgument, 'invalid_request');
            expect(metadata.field).to.equal(field);
            // The error lists the allowed names in the form in which clients send them.
            for (const { name, number } of values)
              if (number !== 0) expect(error.rawMessage).to.include(name);
          }
        } finally {
          connection.close();
        }
      });

      it(`answers RESOURCE_EXHAUSTED over ${wire} for a message over 16 MiB`, async () => {
        const connection = connect(server);
        try {
          const text = 'x'.repeat(17 * 1024 * 1024);
          const jobs = [{ addonId: newAddon(), jobType: 't', costUnits: 1, payload: { text } }];
          const error = await failure(connection.jobs.submitJobs({ jobs }));
          expect(Code[error.code], error.rawMessage).to.equal(Code[Code.ResourceExhausted]);
        } finally {
          connection.close();
        }
      });
    }
  });
});
