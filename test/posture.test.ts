import { expect } from 'chai';
import { type Config, readConfig } from '../src/config.ts';
import { postureOf, postureText } from '../src/posture.ts';
import { failure } from './support/failure.ts';

const configOf = (more: Partial<Config>): Config => ({ ...readConfig({}, {}), ...more });

const everywhere = { host: '0.0.0.0', port: 8080 };
const tls = { tlsCertFile: 'a', tlsKeyFile: 'b' };

describe('the posture', () => {
  it('is open to this machine by default', async () => {
    const posture = await postureOf(configOf({}));
    expect(postureText(posture)).to.equal('open to this machine, no authentication, no TLS');
  });

  it('refuses to listen beyond loopback without authentication and TLS, and names the settings', async () => {
    const wrong: [Partial<Config>, string][] = [
      [{ httpAddr: everywhere }, 'LEASEHOLD_AUTH=keys'],
      [{ grpcAddr: everywhere }, 'LEASEHOLD_GRPC_ADDR'],
      [{ httpAddr: { host: '::', port: 1 } }, 'LEASEHOLD_AUTH=keys'],
      [{ httpAddr: everywhere, auth: ['keys'] }, 'LEASEHOLD_TLS_CERT_FILE'],
      [{ httpAddr: everywhere, ...tls }, 'LEASEHOLD_INSECURE=no-auth'],
      [{ httpAddr: everywhere, insecure: ['no-auth'] }, 'LEASEHOLD_INSECURE=no-tls'],
    ];
    for (const [settings, words] of wrong)
      expect(String(await failure(postureOf(configOf(settings)))), JSON.stringify(settings)).to.include(
        words,
      );
  });

  it('accepts what is stated or secured', async () => {
    for (const settings of [
      { httpAddr: everywhere, insecure: ['no-auth', 'no-tls'] as const },
      { httpAddr: everywhere, auth: ['keys'] as const, ...tls },
      { httpAddr: everywhere, auth: ['keys'] as const, insecure: ['no-tls'] as const },
      { httpAddr: { host: 'localhost', port: 1 }, grpcAddr: { host: '127.9.9.9', port: 2 } },
    ])
      await postureOf(configOf(settings));
  });

  it('refuses settings of TLS that cannot be in force', async () => {
    for (const settings of [
      { tlsCertFile: 'a' },
      { tlsKeyFile: 'a' },
      { tlsClientCaFile: 'a' },
      { ...tls, tlsClientAuth: 'require' as const },
      { ...tls, tlsClientCaFile: 'c' },
      { ...tls, tlsCrlFile: 'c' },
    ])
      await failure(postureOf(configOf(settings)));
  });
});
