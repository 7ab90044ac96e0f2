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

  it('refuses tokens and certificates whose settings do not fit together, and names them', async () => {
    const rules = { accessRulesFile: 'r' };
    const keys = { jwtIssuer: 'i', jwtAudience: 'a', jwtJwksFile: 'k' };
    const tokens = { auth: ['jwt'] as const, ...rules, ...keys };
    const url = (jwtJwksUrl: string) => ({ ...tokens, jwtJwksFile: undefined, jwtJwksUrl });
    const wrong: [Partial<Config>, string][] = [
      [{ ...tokens, accessRulesFile: undefined }, 'LEASEHOLD_ACCESS_RULES_FILE'],
      [{ ...tokens, jwtIssuer: undefined }, 'LEASEHOLD_JWT_ISSUER'],
      [{ ...tokens, jwtAudience: undefined }, 'LEASEHOLD_JWT_AUDIENCE'],
      [{ ...tokens, jwtJwksFile: undefined }, 'LEASEHOLD_JWT_JWKS_URL'],
      [{ ...tokens, jwtJwksUrl: 'https://127.0.0.1/jwks' }, 'either LEASEHOLD_JWT_JWKS_URL'],
      [{ ...tokens, jwtCaFile: 'c' }, 'LEASEHOLD_JWT_CA_FILE needs'],
      [url('http://10.0.0.1/jwks'), 'LEASEHOLD_JWT_JWKS_URL must begin with https'],
      [{ auth: ['keys'], ...rules }, 'LEASEHOLD_ACCESS_RULES_FILE needs jwt or mtls'],
      [{ auth: ['keys'], jwtIssuer: 'i' }, 'LEASEHOLD_JWT_* need jwt'],
      [{ ...tokens, oidcClientId: 'c' }, 'LEASEHOLD_PUBLIC_URL'],
      [{ auth: ['keys'], oidcClientId: 'c', publicUrl: 'https://a.test' }, 'jwt in LEASEHOLD_AUTH'],
      [{ ...tokens, oidcClientId: 'c', publicUrl: 'https://a.test' }, 'an address as LEASEHOLD_JWT_ISSUER'],
      [
        { ...tokens, jwtIssuer: 'https://i.test', oidcClientId: 'c', publicUrl: 'http://192.0.2.1' },
        'LEASEHOLD_PUBLIC_URL must begin with https',
      ],
      [
        { ...tokens, jwtIssuer: 'http://192.0.2.1', oidcClientId: 'c', publicUrl: 'https://a.test' },
        'LEASEHOLD_JWT_ISSUER must begin with https',
      ],
      [{ oidcClientSecretFile: 's' }, 'LEASEHOLD_OIDC_CLIENT_SECRET_FILE needs'],
      [{ auth: ['mtls'], ...tls }, 'LEASEHOLD_ACCESS_RULES_FILE'],
      [{ auth: ['mtls'], ...rules }, 'LEASEHOLD_TLS_CLIENT_AUTH'],
      [{ auth: ['keys', 'mtls'], ...rules, ...tls }, 'LEASEHOLD_TLS_CLIENT_AUTH'],
    ];
    for (const [settings, words] of wrong)
      expect(String(await failure(postureOf(configOf(settings)))), JSON.stringify(settings)).to.include(
        words,
      );
    const client = { ...tls, tlsClientCaFile: 'c', tlsClientAuth: 'request' as const };
    for (const settings of [
      tokens,
      url('https://10.0.0.1/jwks'),
      url('http://[::1]:8080/jwks'),
      { auth: ['mtls'] as const, ...rules, ...client },
      { ...tokens, auth: ['keys', 'jwt', 'mtls'] as const, ...client },
    ])
      await postureOf(configOf(settings));
    const posture = await postureOf(configOf({ ...tokens, auth: ['keys', 'jwt'] }));
    expect(postureText(posture)).to.include('authentication by keys, jwt');
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
