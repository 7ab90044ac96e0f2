/**
 * The gRPC port with TLS: a listener of its own hands each connection to grpc-js after the handshake.
 *
 * grpc-js reads its certificates once, and its providers that reload drop connections while a file is being
 * replaced. One context for both ports also means one list of revoked certificates.
 */

import type { AddressInfo } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { type Server, ServerCredentials } from '@grpc/grpc-js';
import type { Log } from '../../lib/log.ts';
import type { Connections } from '../../lib/net/connections.ts';
import type { TlsFiles } from '../../lib/net/tls-files.ts';

/** How long a TLS handshake may take. */
const handshakeMs = 10_000;

interface Address {
  host: string;
  port: number;
}

export interface SecurePort extends Address {
  /** Accepts no further connections. */
  close(): void;
}

export function listenSecurely(
  server: Server,
  { host, port }: Address,
  { tls, log, connections }: { tls: TlsFiles; log: Log; connections: Connections | undefined },
): Promise<SecurePort> {
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const listener = createServer({ ...tls.material, ALPNProtocols: ['h2'], handshakeTimeout: handshakeMs });
  connections?.guard(listener, 'grpc');
  tls.onChange((material) => listener.setSecureContext(material));
  listener.on('secureConnection', (socket: TLSSocket) => {
    // Without an error listener a reset connection would end the process; grpc-js has its own from here on.
    if (socket.alpnProtocol === 'h2') injector.injectConnection(socket);
    else socket.destroy();
  });
  listener.on('tlsClientError', (error) => log.debug('a TLS handshake failed', { error }));
  return new Promise((resolve, reject) => {
    listener.once('error', (error) =>
      reject(new Error(`gRPC cannot listen on ${host}:${port} (LEASEHOLD_GRPC_ADDR): ${error.message}`)),
    );
    listener.listen({ host, port }, () => {
      listener.on('error', (error) => log.warn('failed to accept a gRPC connection', { error }));
      const bound = listener.address() as AddressInfo;
      resolve({ host, port: bound.port, close: () => listener.close() });
    });
  });
}
