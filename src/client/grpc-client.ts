/**
 * The client: everything that the server offers over gRPC, for programs in JavaScript and TypeScript. Other
 * languages generate theirs from the proto files.
 */
import { type Client, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';

export * from '../../gen/leasehold/v1/files_pb.js';
export * from '../../gen/leasehold/v1/jobs_pb.js';
export * from '../../gen/leasehold/v1/leases_pb.js';
export * from '../../gen/leasehold/v1/stats_pb.js';

export interface LeaseholdClient {
  jobs: Client<typeof JobsService>;
  leases: Client<typeof LeasesService>;
  stats: Client<typeof StatsService>;
  files: Client<typeof FileLeasesService>;
}

/** Node lets a connection hold 10 MB by itself and breaks it beyond that; a frame may have 16 MiB. In MB. */
const nodeOptions = { maxSessionMemory: 100 };

/** Connects to a server's gRPC address, `127.0.0.1:50051` where left out. The connection is made with the first call. */
export function connectLeasehold(address = '127.0.0.1:50051'): LeaseholdClient {
  const baseUrl = /^https?:\/\//.test(address) ? address : `http://${address}`;
  const transport = createGrpcTransport({ baseUrl, pingIntervalMs: 30_000, nodeOptions });
  return {
    jobs: createClient(JobsService, transport),
    leases: createClient(LeasesService, transport),
    stats: createClient(StatsService, transport),
    files: createClient(FileLeasesService, transport),
  };
}
