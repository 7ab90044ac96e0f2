/**
 * The client for JavaScript and TypeScript programs: the whole gRPC API of the server. Other languages
 * generate their client from the proto files.
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

/**
 * Session memory in MB. By default Node limits a connection to 10 MB and breaks it beyond that; a frame may
 * have 16 MiB.
 */
const nodeOptions = { maxSessionMemory: 100 };

/** Connects to a server's gRPC address, `127.0.0.1:50051` by default. The first call opens the connection. */
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
