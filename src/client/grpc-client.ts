/**
 * The client for JavaScript and TypeScript programs: the whole gRPC API of the server. Other languages
 * generate their client from the proto files.
 */
import { type Client, createClient, type Interceptor } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { KeysService } from '../../gen/leasehold/v1/keys_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { QuotasService } from '../../gen/leasehold/v1/quotas_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';
import { certificatesOf, credentialHeaders, credentialOf } from './credentials.ts';

export * from '../../gen/leasehold/v1/files_pb.js';
export * from '../../gen/leasehold/v1/jobs_pb.js';
export * from '../../gen/leasehold/v1/keys_pb.js';
export * from '../../gen/leasehold/v1/leases_pb.js';
export * from '../../gen/leasehold/v1/quotas_pb.js';
export * from '../../gen/leasehold/v1/stats_pb.js';

export interface LeaseholdClient {
  jobs: Client<typeof JobsService>;
  leases: Client<typeof LeasesService>;
  stats: Client<typeof StatsService>;
  files: Client<typeof FileLeasesService>;
  keys: Client<typeof KeysService>;
  quotas: Client<typeof QuotasService>;
  /** Closes the connection. Calls in flight fail; a later call opens a connection again. */
  close(): void;
}

/**
 * Session memory in MB. By default Node limits a connection to 10 MB and breaks it beyond that; a frame may
 * have 16 MiB.
 */
const nodeOptions = { maxSessionMemory: 100 };

export interface ConnectOptions {
  /** The key or token, or what returns it for each call; by default that of the environment. */
  apiKey?: string | (() => string | undefined) | undefined;
  /** The authorities of the server's certificate, in PEM; by default those of the environment. */
  ca?: string | Buffer;
  /** The client's own certificate, and its key, in PEM. */
  cert?: string | Buffer;
  key?: string | Buffer;
}

/** Node reads the options for each connection, so that a renewed certificate is used from then on. */
function secureOptions(given: Pick<ConnectOptions, 'ca' | 'cert' | 'key'>) {
  certificatesOf();
  const current = () => ({ ...certificatesOf(), ...given });
  return {
    ...nodeOptions,
    get ca() {
      return current().ca;
    },
    get cert() {
      return current().cert;
    },
    get key() {
      return current().key;
    },
  };
}

/**
 * Connects to a server's gRPC address, `127.0.0.1:50051` by default. The first call opens the connection.
 * With an address that begins with `https://` it uses TLS; a key is sent in clear text on loopback alone.
 */
export function connectLeasehold(address = '127.0.0.1:50051', options: ConnectOptions = {}): LeaseholdClient {
  const baseUrl = /^https?:\/\//.test(address) ? address : `http://${address}`;
  const url = new URL(baseUrl);
  const { apiKey = () => credentialOf(), ...certificates } = options;
  const authorize: Interceptor = (next) => (request) => {
    const credential = typeof apiKey === 'function' ? apiKey() : apiKey;
    for (const [name, value] of Object.entries(credentialHeaders(url, credential)))
      request.header.set(name, value);
    return next(request);
  };
  const sessionManager = new Http2SessionManager(
    baseUrl,
    { pingIntervalMs: 30_000 },
    url.protocol === 'https:' ? secureOptions(certificates) : nodeOptions,
  );
  const transport = createGrpcTransport({ baseUrl, sessionManager, interceptors: [authorize] });
  return {
    jobs: createClient(JobsService, transport),
    leases: createClient(LeasesService, transport),
    stats: createClient(StatsService, transport),
    files: createClient(FileLeasesService, transport),
    keys: createClient(KeysService, transport),
    quotas: createClient(QuotasService, transport),
    close: () => sessionManager.abort(),
  };
}
