/** Settings that bound what a peer may do with connections, and what the ports tell about the server. */
import { type Address, address, networks, oneOf, setting, whole } from '../lib/setting-values.ts';

export const connectionSettings = {
  maxConnections: setting({
    variable: 'LEASEHOLD_MAX_CONNECTIONS',
    default: 10_000,
    about: 'The most connections of both ports together. Further ones are closed at once.',
    ...whole(1, 1_000_000),
  }),
  maxConnectionsPerAddress: setting({
    variable: 'LEASEHOLD_MAX_CONNECTIONS_PER_ADDRESS',
    default: 2_000,
    about: 'The most connections of one address, or of one /64 network of IPv6.',
    ...whole(1, 1_000_000),
  }),
  connectionIdleS: setting({
    variable: 'LEASEHOLD_CONNECTION_IDLE_S',
    default: 300,
    about: 'How long a connection without requests and streams stays open, in seconds.',
    ...whole(1, 86_400),
  }),
  connectionAgeS: setting({
    variable: 'LEASEHOLD_CONNECTION_AGE_S',
    default: 3_600,
    about:
      'After how many seconds, give or take a tenth, a connection is ended; its streams get `drain` first. ' +
      '0 is never.',
    ...whole(0, 604_800),
  }),
  trustedProxies: setting<readonly string[]>({
    variable: 'LEASEHOLD_TRUSTED_PROXIES',
    default: [],
    defaultText: 'none',
    about:
      'Proxies whose `x-forwarded-for` names the client of an HTTP request. Their connections have no ' +
      'limit by address.',
    ...networks,
  }),
  reflection: setting<'auto' | 'on' | 'off'>({
    variable: 'LEASEHOLD_REFLECTION',
    default: 'auto',
    about:
      'Whether gRPC describes its services to clients; auto does so if only this machine reaches the ports.',
    ...oneOf('auto', 'on', 'off'),
  }),
  metricsAddr: setting<Address | undefined>({
    variable: 'LEASEHOLD_METRICS_ADDR',
    default: undefined,
    defaultText: 'no further port',
    about: 'A further port in clear text without credentials, for metrics and probes alone.',
    ...address,
  }),
};
