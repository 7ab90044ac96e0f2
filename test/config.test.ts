/** What may be set, in which way, and what is said of what may not. */
import { expect } from 'chai';
import { ConfigError, flagOf, flagVariables, readConfig, settings } from '../src/config.ts';
import { runCommand } from './support/process.ts';

const numbers = ['0', '-1', '1.5', '1e1', '0x10', ' 5', '5 s', 'five', '999999999'];
const addresses = ['8080', 'localhost', ':8080', 'a b:1', 'host:', 'host:65536', '1:2:3', '[::1]', 'host:1/'];

/** Values that must be refused, by variable. Nothing but a NUL, which no environment can hold, is no directory. */
const badValues: Record<string, readonly string[]> = {
  DATABASE_URL: ['nowhere', 'mysql://host/db', 'http://host', '127.0.0.1:5432', '//host/db', 'postgres'],
  REDIS_URL: ['nowhere', 'postgres://host', 'http://host', '127.0.0.1:6379', '//host', 'redis'],
  LEASEHOLD_DATA_DIR: ['a\0b'],
  LEASEHOLD_HTTP_ADDR: addresses,
  LEASEHOLD_ALLOWED_HOSTS: [
    'http://a.test',
    'a.test:8080',
    'a b',
    'a,,b',
    ',',
    '*.',
    'a.*',
    '**',
    '*a.test',
    '.a.test',
    '[::1]',
    `${'a'.repeat(64)}.test`,
  ],
  LEASEHOLD_ALLOWED_ORIGINS: [
    '*',
    'null',
    'app.test',
    'https://app.test/',
    'https://app.test:443',
    'https://App.test',
    'https://*.app.test',
    'https://app.test/page',
    'https://user@app.test',
    'file:///app',
    'https://a.test,',
    'https://a.test,null',
  ],
  LEASEHOLD_GRPC_ADDR: addresses,
  LEASEHOLD_AUTH: ['yes', 'keys,', 'oidc', 'keys;keys'],
  LEASEHOLD_INSECURE: ['auth', 'no-auth;no-tls', 'all'],
  LEASEHOLD_AUTH_REFRESH_S: [...numbers, '6'],
  LEASEHOLD_RATE_SUBMIT: [...numbers.filter((text) => !/^\d+$/.test(text)), '1000000001'],
  LEASEHOLD_RATE_READ: [...numbers.filter((text) => !/^\d+$/.test(text)), '1000000001'],
  LEASEHOLD_RATE_BURST_S: [...numbers, '3601'],
  LEASEHOLD_RATE_ANONYMOUS: [...numbers.filter((text) => !/^\d+$/.test(text)), '1000000001'],
  LEASEHOLD_MAX_STREAMS_PER_KEY: [...numbers.filter((text) => text !== '0'), '1000001'],
  LEASEHOLD_SESSION_TTL_S: [...numbers, '59', '604801'],
  LEASEHOLD_ADMIN_KEY_FILE: ['a\0b'],
  LEASEHOLD_OIDC_CLIENT_ID: ['a b', 'x'.repeat(2_049)],
  LEASEHOLD_OIDC_CLIENT_SECRET_FILE: ['a\0b'],
  LEASEHOLD_PUBLIC_URL: ['leases.test', 'https://leases.test/', 'https://leases.test/app', 'null', '*'],
  LEASEHOLD_ACCESS_RULES_FILE: ['a\0b'],
  LEASEHOLD_JWT_ISSUER: ['a b', 'a\0b', 'a'.repeat(2_049)],
  LEASEHOLD_JWT_AUDIENCE: ['a b', 'a\nb'],
  LEASEHOLD_JWT_JWKS_URL: ['nowhere', 'ftp://host', 'host/jwks', '//host/jwks'],
  LEASEHOLD_JWT_JWKS_FILE: ['a\0b'],
  LEASEHOLD_JWT_CA_FILE: ['a\0b'],
  LEASEHOLD_JWT_ALGORITHMS: ['none', 'HS256', 'RS256,HS256', 'RS256,', 'RS512'],
  LEASEHOLD_JWT_MAX_AGE_S: [...numbers.filter((text) => !/^\d+$/.test(text)), '31536001'],
  LEASEHOLD_TLS_CERT_FILE: ['a\0b'],
  LEASEHOLD_TLS_KEY_FILE: ['a\0b'],
  LEASEHOLD_TLS_CLIENT_CA_FILE: ['a\0b'],
  LEASEHOLD_TLS_CLIENT_AUTH: ['yes', 'optional', 'Require'],
  LEASEHOLD_TLS_CRL_FILE: ['a\0b'],
  LEASEHOLD_TLS_MIN_VERSION: ['1.2', 'TLSv1.1', 'SSLv3'],
  LEASEHOLD_TLS_RELOAD_S: [...numbers, '3601'],
  LEASEHOLD_MAX_CONNECTIONS: [...numbers.filter((text) => !/^\d+$/.test(text)), '0', '1000001'],
  LEASEHOLD_MAX_CONNECTIONS_PER_ADDRESS: [...numbers.filter((text) => !/^\d+$/.test(text)), '0', '1000001'],
  LEASEHOLD_CONNECTION_IDLE_S: [...numbers, '86401'],
  LEASEHOLD_CONNECTION_AGE_S: [...numbers.filter((text) => text !== '0'), '604801'],
  LEASEHOLD_TRUSTED_PROXIES: ['proxy', '10.0.0.0/33', '::1/129', '10.0.0.1,', '10.0.0.1:80', '*'],
  LEASEHOLD_REFLECTION: ['yes', 'ON', 'on,off'],
  LEASEHOLD_METRICS_ADDR: addresses,
  LEASEHOLD_LEASE_TTL_S: [...numbers, '3601'],
  LEASEHOLD_HEARTBEAT_GRACE_S: [...numbers.filter((text) => text !== '0'), '3601'],
  LEASEHOLD_CAPACITY_TOTAL: [...numbers.filter((text) => !/^\d+$/.test(text)), '1000000001'],
  LEASEHOLD_CLAIM_TTL_S: [...numbers, '3601'],
  LEASEHOLD_MAX_CLAIMS: [...numbers, '10001'],
  LEASEHOLD_MAX_ATTEMPTS: [...numbers, '1001'],
  LEASEHOLD_STREAM_MAX_ATTEMPTS: [...numbers, '1001'],
  LEASEHOLD_RETENTION_JOBS_DAYS: ['-1', '36501', '1.5', 'x'],
  LEASEHOLD_RETENTION_EVENTS_DAYS: ['-1', '36501', '30d'],
  LEASEHOLD_RETENTION_SAMPLES_DAYS: ['-1', '36501', ' '],
  LEASEHOLD_RETENTION_FILES_DAYS: ['-1', '36501', 'never'],
  LEASEHOLD_RETENTION_AUDIT_DAYS: ['-1', '36501', 'forever'],
  LEASEHOLD_POOL_MAX: [...numbers, '1', '1001'],
  LEASEHOLD_DATABASE_WAIT_S: [...numbers.filter((text) => text !== '0'), '3601'],
  OTEL_EXPORTER_OTLP_ENDPOINT: ['nowhere', 'postgres://host', 'grpc://host:4317', '127.0.0.1:4318', 'http'],
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ['nowhere', 'ftp://host', '//host/v1/traces'],
  LEASEHOLD_LOG: ['INFO', 'loud', 'info,warn', ' info'],
};

const definitions = Object.values(settings);

function refusal(flags: Record<string, string>, env: Record<string, string>): string {
  try {
    readConfig(flags, env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return 'it was taken';
}

describe('the settings', () => {
  it('have bad values listed here, each of them', () => {
    expect(Object.keys(badValues)).to.have.members(definitions.map(({ variable }) => variable));
  });

  for (const { variable, allowed } of definitions) {
    it(`refuse what is no ${variable}, naming it, what was found and what is allowed`, () => {
      for (const bad of badValues[variable] ?? []) {
        const byVariable = refusal({}, { [variable]: bad });
        const byFlag = refusal({ [variable]: bad }, {});
        for (const words of [byVariable, byFlag]) {
          expect(words, JSON.stringify(bad)).to.include(variable).and.to.include(allowed);
          expect(words).to.include(JSON.stringify(bad));
        }
        expect(byFlag).to.include(`--${flagOf(variable)}`);
      }
    });
  }

  it('have their defaults where nothing is said, and where only nothing is said', () => {
    const empty = Object.fromEntries(definitions.map(({ variable }) => [variable, '']));
    const defaults = Object.fromEntries(Object.entries(settings).map(([name, each]) => [name, each.default]));
    expect(readConfig({}, {})).to.deep.equal(defaults);
    expect(readConfig({}, empty)).to.deep.equal(defaults);
    expect(readConfig(empty, {})).to.deep.equal(defaults);
  });

  it('are taken from the flag where variable and flag differ, and from the variable where the flag is empty', () => {
    const env = { LEASEHOLD_MAX_CLAIMS: '3' };
    expect(readConfig({ LEASEHOLD_MAX_CLAIMS: '4' }, env).maxClaims).to.equal(4);
    expect(readConfig({ LEASEHOLD_MAX_CLAIMS: '4' }, { LEASEHOLD_MAX_CLAIMS: 'bad' }).maxClaims).to.equal(4);
    expect(readConfig({ LEASEHOLD_MAX_CLAIMS: '' }, env).maxClaims).to.equal(3);
  });

  it('take hosts as names, suffixes, addresses and any', () => {
    const hosts = (text: string) => readConfig({}, { LEASEHOLD_ALLOWED_HOSTS: text }).allowedHosts;
    expect(hosts('*')).to.deep.equal(['*']);
    expect(hosts('Leasehold, *.Example.com,10.0.0.7,fe80::1,my_host')).to.deep.equal([
      'leasehold',
      '*.example.com',
      '10.0.0.7',
      'fe80::1',
      'my_host',
    ]);
  });

  it('take addresses of every kind', () => {
    const parse = (text: string) => readConfig({}, { LEASEHOLD_HTTP_ADDR: text }).httpAddr;
    expect(parse('0.0.0.0:0')).to.deep.equal({ host: '0.0.0.0', port: 0 });
    expect(parse('[::1]:8080')).to.deep.equal({ host: '::1', port: 8080 });
    expect(parse('localhost:65535')).to.deep.equal({ host: 'localhost', port: 65_535 });
  });

  it('each have a short flag and one in full', () => {
    expect(flagVariables.get('http-addr')).to.equal('LEASEHOLD_HTTP_ADDR');
    expect(flagVariables.get('leasehold-http-addr')).to.equal('LEASEHOLD_HTTP_ADDR');
    expect(flagVariables.get('database-url')).to.equal('DATABASE_URL');
    expect(new Set(flagVariables.values()).size).to.equal(definitions.length);
  });

  const urls = [
    'mysql://me:open-sesame@host/db',
    'mysql://me:x@open-sesame@host/db',
    'mysql://me:x/open-sesame@host/db',
    'me:open-sesame@host/db',
    'mysql://host/db?user=me&password=open-sesame',
    'postgres://me:open-sesame@[host/db',
    'postgres://me:open-sesame%zz@host/db',
  ];
  for (const url of urls) {
    it(`keep the password to themselves where they refuse ${url}`, () => {
      const words = refusal({}, { DATABASE_URL: url });
      expect(words).to.include('DATABASE_URL').and.to.include('a postgres:// address');
      expect(words).to.not.include('sesame');
    });
  }
});

describe('leasehold serve and migrate', () => {
  it('refuse a bad value of any setting, and end with 2', async () => {
    // A NUL cannot be passed to a process.
    const bad = definitions.filter(
      ({ variable }) => !badValues[variable]?.some((text) => text.includes('\0')),
    );
    const exits = await Promise.all(
      bad.map(({ variable }, i) => {
        const value = badValues[variable]?.[0] ?? '';
        return i % 2 === 0
          ? runCommand(['serve'], { [variable]: value })
          : runCommand(['migrate', `--${flagOf(variable)}=${value}`]);
      }),
    );
    for (const [i, { code, stdout, stderr }] of exits.entries()) {
      const { variable, allowed } = bad[i] as (typeof bad)[number];
      expect({ code, stdout }, stderr).to.deep.equal({ code: 2, stdout: '' });
      const [first = '', second, ...rest] = stderr.split('\n');
      expect(first).to.match(/^leasehold: /);
      expect(first).to.include(variable).and.to.include(allowed);
      expect([second, rest]).to.deep.equal([
        `See 'leasehold ${i % 2 === 0 ? 'serve' : 'migrate'} --help'.`,
        [],
      ]);
    }
  });
});
