/** Metrics of connections: how many are open, and how many were refused. */
import type { Connections } from '../../lib/net/connections.ts';
import type { Registry } from '../registry.ts';

export function declareConnections(registry: Registry, connections: Connections): void {
  registry.gauge(
    'leasehold_connections',
    'Open connections, by port: http or grpc.',
    () => [...connections.open].map(([port, value]) => ({ labels: { port }, value })),
    'port',
  );
  registry.counting(
    'leasehold_connections_refused_total',
    'Connections that were refused, by port and reason: total, address or conduct.',
    () =>
      [...connections.refused].map(([key, value]) => {
        const [port = '', reason = ''] = key.split(' ');
        return { labels: { port, reason }, value };
      }),
    'port',
    'reason',
  );
}
