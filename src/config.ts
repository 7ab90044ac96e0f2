import { type LogLevel, logLevels } from './lib/log.ts';
import {
  type Address,
  address,
  hosts,
  list,
  origins,
  type Setting,
  setting,
  url,
  whole,
} from './lib/setting-values.ts';
import { accessSettings } from './settings/access.ts';
import { connectionSettings } from './settings/connections.ts';
import { tlsSettings } from './settings/tls.ts';

export type { Address };

export const insecurities = ['no-auth', 'no-tls'] as const;

/** Every setting. Groups of them are in `src/settings`. */
export const settings = {
  databaseUrl: setting<string | undefined>({
    variable: 'DATABASE_URL',
    default: undefined,
    defaultText: 'an embedded database',
    about: 'The PostgreSQL (14 or later) that stores everything; any number of servers may share it.',
    ...url('postgres', ['postgres:', 'postgresql:']),
  }),
  redisUrl: setting<string | undefined>({
    variable: 'REDIS_URL',
    default: undefined,
    defaultText: 'the database alone',
    about: 'The Redis that carries the messages of streams. The database stays the truth.',
    ...url('redis', ['redis:', 'rediss:']),
  }),
  dataDir: setting({
    variable: 'LEASEHOLD_DATA_DIR',
    default: './.leasehold',
    about: 'Where the embedded database lives.',
    allowed: 'the path of a directory',
    parse: (text) => (text.includes('\0') ? undefined : text),
  }),
  httpAddr: setting<Address>({
    variable: 'LEASEHOLD_HTTP_ADDR',
    default: { host: '127.0.0.1', port: 8080 },
    defaultText: '127.0.0.1:8080',
    about: 'Where HTTP is served: REST, Connect, gRPC-Web, health.',
    ...address,
  }),
  allowedHosts: setting<readonly string[]>({
    variable: 'LEASEHOLD_ALLOWED_HOSTS',
    default: [],
    defaultText: 'loopback names and the addresses that HTTP is bound to',
    about:
      'Further host names that HTTP requests may be for. Every IP address is allowed if HTTP is bound to more ' +
      'than loopback.',
    ...hosts,
  }),
  allowedOrigins: setting<readonly string[]>({
    variable: 'LEASEHOLD_ALLOWED_ORIGINS',
    default: [],
    defaultText: 'none',
    about:
      'Origins whose web pages may call this server over HTTP and read its answers. They send a credential ' +
      'of their own; cookies of this server never count for them.',
    ...origins,
  }),
  grpcAddr: setting<Address>({
    variable: 'LEASEHOLD_GRPC_ADDR',
    default: { host: '127.0.0.1', port: 50051 },
    defaultText: '127.0.0.1:50051',
    about: 'Where gRPC is served.',
    ...address,
  }),
  ...accessSettings,
  insecure: setting<readonly (typeof insecurities)[number][]>({
    variable: 'LEASEHOLD_INSECURE',
    default: [],
    defaultText: 'nothing',
    about: 'What a server that listens beyond loopback may do without: authentication, TLS, or both.',
    ...list(insecurities),
  }),
  rateSubmit: setting({
    variable: 'LEASEHOLD_RATE_SUBMIT',
    default: 0,
    about:
      'Jobs a second that each credential may submit, cancel and retry on one server; 0 is no limit. ' +
      'A key may have its own rate.',
    ...whole(0, 1_000_000_000),
  }),
  rateRead: setting({
    variable: 'LEASEHOLD_RATE_READ',
    default: 0,
    about:
      'Calls and rows a second that each credential may read on one server, requests for work included; ' +
      '0 is no limit. Heartbeats and releases are never limited. A key may have its own rate.',
    ...whole(0, 1_000_000_000),
  }),
  rateBurstS: setting({
    variable: 'LEASEHOLD_RATE_BURST_S',
    default: 10,
    about: 'For how many seconds of its rate a credential that has paused may go beyond it at once.',
    ...whole(1, 3_600),
  }),
  rateAnonymous: setting({
    variable: 'LEASEHOLD_RATE_ANONYMOUS',
    default: 10,
    about: 'Calls a second without a valid credential from one address; 0 is no limit.',
    ...whole(0, 1_000_000_000),
  }),
  maxStreamsPerKey: setting({
    variable: 'LEASEHOLD_MAX_STREAMS_PER_KEY',
    default: 5_000,
    about: 'Streams that each credential may keep open on one server; 0 is no limit.',
    ...whole(0, 1_000_000),
  }),
  ...tlsSettings,
  ...connectionSettings,
  leaseTtlS: setting({
    variable: 'LEASEHOLD_LEASE_TTL_S',
    default: 60,
    about: 'How long a lease lasts without a heartbeat, in seconds, unless its request says otherwise.',
    ...whole(1, 3_600),
  }),
  heartbeatGraceS: setting({
    variable: 'LEASEHOLD_HEARTBEAT_GRACE_S',
    default: 0,
    about: 'How much longer than its TTL a lease holds, in seconds: for heartbeats that are late.',
    ...whole(0, 3_600),
  }),
  capacityTotal: setting({
    variable: 'LEASEHOLD_CAPACITY_TOTAL',
    default: 100,
    about: 'Units of capacity. A change through the API is stored, and replaces this setting.',
    ...whole(0, 1_000_000_000),
  }),
  claimTtlS: setting({
    variable: 'LEASEHOLD_CLAIM_TTL_S',
    default: 60,
    about: 'How long a claim without a lease holds, in seconds.',
    ...whole(1, 3_600),
  }),
  maxClaims: setting({
    variable: 'LEASEHOLD_MAX_CLAIMS',
    default: 10,
    about:
      'Claims in a row that may expire before the job is FAILED, and unconfirmed grants in a row before ' +
      'one counts as an attempt.',
    ...whole(1, 10_000),
  }),
  maxAttempts: setting({
    variable: 'LEASEHOLD_MAX_ATTEMPTS',
    default: 1,
    about: 'The default of max_attempts for jobs without a stream.',
    ...whole(1, 1_000),
  }),
  streamMaxAttempts: setting({
    variable: 'LEASEHOLD_STREAM_MAX_ATTEMPTS',
    default: 3,
    about: 'The default of max_attempts for jobs of a stream.',
    ...whole(1, 1_000),
  }),
  retentionJobsDays: setting({
    variable: 'LEASEHOLD_RETENTION_JOBS_DAYS',
    default: 30,
    about: 'For how many days a job that has ended is kept, with its leases; 0 is for ever.',
    ...whole(0, 36_500),
  }),
  retentionEventsDays: setting({
    variable: 'LEASEHOLD_RETENTION_EVENTS_DAYS',
    default: 30,
    about: 'For how many days the history of jobs is kept; 0 is for ever.',
    ...whole(0, 36_500),
  }),
  retentionSamplesDays: setting({
    variable: 'LEASEHOLD_RETENTION_SAMPLES_DAYS',
    default: 30,
    about: 'For how many days the samples of statistics are kept; 0 is for ever.',
    ...whole(0, 36_500),
  }),
  retentionFilesDays: setting({
    variable: 'LEASEHOLD_RETENTION_FILES_DAYS',
    default: 30,
    about: 'For how many days the history, the contentions and the owners of files are kept; 0 is for ever.',
    ...whole(0, 36_500),
  }),
  retentionAuditDays: setting({
    variable: 'LEASEHOLD_RETENTION_AUDIT_DAYS',
    default: 365,
    about: 'For how many days the audit is kept; 0 is for ever.',
    ...whole(0, 36_500),
  }),
  poolMax: setting({
    variable: 'LEASEHOLD_POOL_MAX',
    default: 10,
    about:
      'The most connections to PostgreSQL, besides one that listens for other servers and short-lived ones that ' +
      'cancel abandoned statements.',
    ...whole(2, 1_000),
  }),
  databaseWaitS: setting({
    variable: 'LEASEHOLD_DATABASE_WAIT_S',
    default: 60,
    about: 'How long a starting server waits for an unavailable PostgreSQL, in seconds; 0 fails at once.',
    ...whole(0, 3_600),
  }),
  otlpEndpoint: setting<string | undefined>({
    variable: 'OTEL_EXPORTER_OTLP_ENDPOINT',
    default: undefined,
    defaultText: 'no traces',
    about:
      'The OpenTelemetry collector that receives traces, over OTLP/HTTP. The other variables of the standard ' +
      'apply as well.',
    ...url('http', ['http:', 'https:']),
  }),
  otlpTracesEndpoint: setting<string | undefined>({
    variable: 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
    default: undefined,
    defaultText: 'the path /v1/traces there',
    about: 'The full address that receives traces.',
    ...url('http', ['http:', 'https:']),
  }),
  log: setting<LogLevel>({
    variable: 'LEASEHOLD_LOG',
    default: 'info',
    about: 'How much is logged: JSON lines on standard error, words for people on a terminal.',
    allowed: `one of ${logLevels.join(', ')}`,
    parse: (text) => logLevels.find((level) => level === text),
  }),
};

type Settings = typeof settings;
export type Config = { [Name in keyof Settings]: Settings[Name]['default'] };

/**
 * A setting with a value that is not allowed. The message names the setting, its value, and what is allowed.
 */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** `LEASEHOLD_HTTP_ADDR` as it is written on the command line: `http-addr`. */
export const flagOf = (variable: string): string =>
  variable
    .replace(/^LEASEHOLD_/, '')
    .toLowerCase()
    .replaceAll('_', '-');

/** Both spellings of every flag, and the variable that each stands for. */
export const flagVariables: ReadonlyMap<string, string> = new Map(
  Object.values(settings).flatMap(({ variable }) => [
    [flagOf(variable), variable],
    [variable.toLowerCase().replaceAll('_', '-'), variable],
  ]),
);

/** Reads the settings from flags, by the name of their variable, and from the environment. */
export function readConfig(flags: Readonly<Record<string, string>>, env: NodeJS.ProcessEnv): Config {
  const values = Object.entries(settings).map(([name, definition]) => {
    const { variable, allowed, parse } = definition as Setting<unknown>;
    const flag = flags[variable] || undefined;
    const text = flag ?? env[variable] ?? '';
    if (text === '') return [name, definition.default];
    const value = parse(text);
    if (value !== undefined) return [name, value];
    const source = flag === undefined ? variable : `--${flagOf(variable)} (${variable})`;
    throw new ConfigError(`${source} is ${JSON.stringify(shown(variable, text))}; it must be ${allowed}`);
  });
  return Object.fromEntries(values) as Config;
}

/** Hides the password that an address may contain, because it must not appear in a log. */
const shown = (variable: string, text: string): string =>
  /_(URL|ENDPOINT)$/.test(variable) ? text.replace(/^(\w+:\/\/)?.*@/s, '$1…@').replace(/\?.*/s, '?…') : text;

/** The settings as a table for `--help`. */
export function settingsHelp(): string {
  return Object.values(settings)
    .map((definition) => {
      const { variable, about, allowed, default: value, defaultText } = definition as Setting<unknown>;
      return [
        `  --${flagOf(variable)}  (${variable})`,
        `      ${about}`,
        `      ${allowed}; default: ${defaultText ?? String(value)}`,
      ].join('\n');
    })
    .join('\n');
}
