import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { create, createFileRegistry, type DescMessage, fromBinary, toJson } from '@bufbuild/protobuf';
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from '@bufbuild/protobuf/wkt';
import { credentials, Client as GrpcClient, Metadata } from '@grpc/grpc-js';
import { expect } from 'chai';
import { temporaryFolder } from '../../support/cleanup.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, newAddon } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const buf = fileURLToPath(new URL('../../../node_modules/.bin/buf', import.meta.url));

onEveryEngine((engine) => {
  // The server's description of itself does not depend on its database.
  if (engine.name !== 'embedded') return;

  describe('reflection for a client without a schema', () => {
    let server: TestServer;
    let folder: string;
    before(async () => {
      server = await startTestServer(engine);
      folder = await temporaryFolder('buf');
    });
    after(() => server.stop());

    const plain = ['--protocol', 'grpc', '--http2-prior-knowledge'];
    const curl = (...args: string[]): Promise<{ failed: boolean; stdout: string; stderr: string }> =>
      new Promise((resolve) => {
        // Runs outside the repository, because the client must not need its proto files.
        const options = { cwd: folder, env: { ...process.env, HOME: folder, BUF_CACHE_DIR: folder } };
        execFile(buf, ['curl', ...plain, ...args], options, (error, stdout, stderr) =>
          resolve({ failed: error !== null, stdout, stderr }),
        );
      });
    const call = (method: string, message: object) =>
      curl('--data', JSON.stringify(message), `http://${server.grpc}/${method}`);
    const answer = async (method: string, message: object): Promise<Body> => {
      const { failed, stdout, stderr } = await call(method, message);
      expect(failed, stderr).to.equal(false);
      return JSON.parse(stdout);
    };

    it('lists the services, health among them', async () => {
      const { stdout, stderr } = await curl('--list-services', `http://${server.grpc}`);
      expect(stdout.trim().split('\n'), stderr).to.include.members([
        'leasehold.v1.JobsService',
        'leasehold.v1.LeasesService',
        'leasehold.v1.StatsService',
        'grpc.health.v1.Health',
      ]);
    });

    it('lists the methods', async () => {
      const { stdout, stderr } = await curl('--list-methods', `http://${server.grpc}`);
      const methods = stdout.trim().split('\n');
      expect(methods, stderr).to.include.members([
        'leasehold.v1.JobsService/SubmitJob',
        'leasehold.v1.JobsService/WatchJob',
        'grpc.health.v1.Health/Check',
      ]);
    });

    it('submits a job by reflection', async () => {
      const { job } = await answer('leasehold.v1.JobsService/SubmitJob', {
        addonId: newAddon(),
        jobType: 'load30',
        priority: 'PRIORITY_HIGH',
        costUnits: 30,
        payload: { any: ['thing', null] },
      });
      expect(job).to.include({ state: 'JOB_STATE_QUEUED', priority: 'PRIORITY_HIGH', costUnits: 30 });
      expect(job.payload).to.deep.equal({ any: ['thing', null] });
      const stream = await call('leasehold.v1.JobsService/CancelJob', { jobId: job.jobId });
      expect(stream.failed, stream.stderr).to.equal(false);
      const watched = await answer('leasehold.v1.JobsService/WatchJob', { jobId: job.jobId });
      expect(watched.job.state).to.equal('JOB_STATE_CANCELED');
    });

    it('answers health for the server and for each of its services', async () => {
      for (const service of ['', 'leasehold.v1.JobsService', 'leasehold.v1.LeasesService']) {
        expect(await answer('grpc.health.v1.Health/Check', { service })).to.deep.equal({ status: 'SERVING' });
      }
      const { failed, stderr } = await call('grpc.health.v1.Health/Check', { service: 'nothing' });
      expect(failed).to.equal(true);
      expect(JSON.parse(stderr).code).to.equal('not_found');
    });

    it('decodes the details of an error', async () => {
      const { failed, stderr } = await call('leasehold.v1.JobsService/SubmitJob', {
        addonId: 'a',
        jobType: 't',
      });
      expect(failed).to.equal(true);
      const error = JSON.parse(stderr);
      expect(error.code).to.equal('invalid_argument');
      expect(error.message).to.match(/^invalid_request: cost_units/);
      const [detail] = error.details;
      const schema = await reflected(server, detail.type);
      const info = fromBinary(schema, Buffer.from(detail.value, 'base64'));
      const metadata = { field: 'cost_units' };
      expect(toJson(schema, info)).to.deep.equal({
        reason: 'invalid_request',
        domain: 'leasehold',
        metadata,
      });
    });

    it('finds every type by its name, with all of its dependencies', async () => {
      for (const name of [
        'google.rpc.Status',
        'google.rpc.BadRequest',
        'leasehold.v1.Job',
        'google.protobuf.Struct',
      ]) {
        expect((await reflected(server, name)).typeName).to.equal(name);
      }
    });
  });
});

/** Requests a type from the reflection service, like any client that meets an unknown type. */
async function reflected(server: TestServer, typeName: string): Promise<DescMessage> {
  const client = new GrpcClient(server.grpc, credentials.createInsecure());
  const same = (bytes: Buffer) => bytes;
  // ServerReflectionRequest has the symbol in field 4.
  const request = new BinaryWriter().tag(4, WireType.LengthDelimited).string(typeName).finish();
  try {
    const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
    const call = client.makeBidiStreamRequest(path, same, same, new Metadata());
    call.end(Buffer.from(request));
    const file: FileDescriptorProto[] = [];
    for await (const answer of call) {
      // ServerReflectionResponse has a FileDescriptorResponse in field 4, and that the files in field 1.
      for (const response of fields(answer as Buffer, 4)) {
        for (const bytes of fields(response, 1)) file.push(fromBinary(FileDescriptorProtoSchema, bytes));
      }
    }
    // A file precedes its imports, and a registry needs the opposite order.
    const files = create(FileDescriptorSetSchema, { file: file.reverse() });
    const schema = createFileRegistry(files).getMessage(typeName);
    if (!schema) throw new Error(`the server does not know ${typeName}`);
    return schema;
  } finally {
    client.close();
  }
}

function fields(message: Uint8Array, number: number): Uint8Array[] {
  const reader = new BinaryReader(message);
  const found: Uint8Array[] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === number) found.push(reader.bytes());
    else reader.skip(type, field);
  }
  return found;
}
