/**
 * Whether a server may listen where it is configured to. Beyond loopback it needs authentication and TLS,
 * unless the configuration says which of them it does without. What is configured and cannot be in force
 * stops the start: a server is never open by mistake.
 */
import { lookup } from 'node:dns/promises';
import { type Address, type Config, ConfigError } from './config.ts';
import { isLoopback } from './lib/net/loopback.ts';

export interface Posture {
  /** Other machines can reach a port. */
  isReachable: boolean;
  auth: Config['auth'];
  hasTls: boolean;
}

export async function postureOf(config: Config): Promise<Posture> {
  const { auth, insecure, httpAddr, grpcAddr } = config;
  checkTls(config);
  await checkLogins(config);
  await checkIdentities(config);
  const posture = { isReachable: false, auth, hasTls: config.tlsCertFile !== undefined };
  for (const [variable, address] of [
    ['LEASEHOLD_HTTP_ADDR', httpAddr],
    ['LEASEHOLD_GRPC_ADDR', grpcAddr],
  ] as const) {
    if (await isOnLoopback(address)) continue;
    posture.isReachable = true;
    const place = `${variable} is ${address.host}:${address.port}, which other machines can reach`;
    if (auth.length === 0 && !insecure.includes('no-auth'))
      throw new ConfigError(
        `${place}: set LEASEHOLD_AUTH=keys, or LEASEHOLD_INSECURE=no-auth to let every caller do everything`,
      );
    if (!posture.hasTls && !insecure.includes('no-tls'))
      throw new ConfigError(
        `${place}: set LEASEHOLD_TLS_CERT_FILE and LEASEHOLD_TLS_KEY_FILE, ` +
          'or LEASEHOLD_INSECURE=no-tls where a proxy ends TLS',
      );
  }
  return posture;
}

/** The posture in words, for the line that says `ready`. */
export function postureText({ isReachable, auth, hasTls }: Posture): string {
  const who = auth.length === 0 ? 'no authentication' : `authentication by ${auth.join(', ')}`;
  const place = isReachable ? 'open to other machines' : 'open to this machine';
  return `${place}, ${who}, ${hasTls ? 'TLS' : 'no TLS'}`;
}

function checkTls({ tlsCertFile, tlsKeyFile, tlsClientCaFile, tlsClientAuth, tlsCrlFile }: Config): void {
  if ((tlsCertFile === undefined) !== (tlsKeyFile === undefined))
    throw new ConfigError('LEASEHOLD_TLS_CERT_FILE and LEASEHOLD_TLS_KEY_FILE need each other');
  const needsCertificate =
    tlsClientAuth !== 'none' || tlsCrlFile !== undefined || tlsClientCaFile !== undefined;
  if (needsCertificate && tlsCertFile === undefined)
    throw new ConfigError('client certificates need LEASEHOLD_TLS_CERT_FILE and LEASEHOLD_TLS_KEY_FILE');
  if ((tlsClientAuth === 'none') !== (tlsClientCaFile === undefined))
    throw new ConfigError('LEASEHOLD_TLS_CLIENT_AUTH and LEASEHOLD_TLS_CLIENT_CA_FILE need each other');
  if (tlsCrlFile !== undefined && tlsClientCaFile === undefined)
    throw new ConfigError('LEASEHOLD_TLS_CRL_FILE needs LEASEHOLD_TLS_CLIENT_CA_FILE');
}

/** Tokens and certificates need settings of their own, which nothing else uses. */
async function checkIdentities(config: Config): Promise<void> {
  const { auth, accessRulesFile, tlsClientAuth, jwtIssuer, jwtAudience, jwtJwksUrl, jwtJwksFile } = config;
  const [hasTokens, hasCertificates] = [auth.includes('jwt'), auth.includes('mtls')];
  if ((hasTokens || hasCertificates) && accessRulesFile === undefined)
    throw new ConfigError(
      `LEASEHOLD_AUTH is ${auth.join(',')}: set LEASEHOLD_ACCESS_RULES_FILE, which says who may do what`,
    );
  if (!hasTokens && !hasCertificates && accessRulesFile !== undefined)
    throw new ConfigError('LEASEHOLD_ACCESS_RULES_FILE needs jwt or mtls in LEASEHOLD_AUTH');
  if (hasCertificates && tlsClientAuth === 'none')
    throw new ConfigError(
      'LEASEHOLD_AUTH has mtls: set LEASEHOLD_TLS_CLIENT_AUTH and LEASEHOLD_TLS_CLIENT_CA_FILE',
    );
  const tokenSettings = { jwtIssuer, jwtAudience, jwtJwksUrl, jwtJwksFile, jwtCaFile: config.jwtCaFile };
  if (!hasTokens) {
    if (Object.values(tokenSettings).some((value) => value !== undefined))
      throw new ConfigError('the settings LEASEHOLD_JWT_* need jwt in LEASEHOLD_AUTH');
    return;
  }
  if (jwtIssuer === undefined || jwtAudience === undefined)
    throw new ConfigError('LEASEHOLD_AUTH has jwt: set LEASEHOLD_JWT_ISSUER and LEASEHOLD_JWT_AUDIENCE');
  if ((jwtJwksUrl === undefined) === (jwtJwksFile === undefined))
    throw new ConfigError(
      'LEASEHOLD_AUTH has jwt: set either LEASEHOLD_JWT_JWKS_URL or LEASEHOLD_JWT_JWKS_FILE',
    );
  if (config.jwtCaFile !== undefined && jwtJwksUrl === undefined)
    throw new ConfigError('LEASEHOLD_JWT_CA_FILE needs LEASEHOLD_JWT_JWKS_URL');
  if (jwtJwksUrl !== undefined) await checkSecure('LEASEHOLD_JWT_JWKS_URL', new URL(jwtJwksUrl));
}

/** Logins of browsers at the identity provider. */
async function checkLogins(config: Config): Promise<void> {
  const { auth, jwtIssuer, oidcClientId, oidcClientSecretFile, publicUrl } = config;
  if (oidcClientId === undefined) {
    if (oidcClientSecretFile !== undefined)
      throw new ConfigError('LEASEHOLD_OIDC_CLIENT_SECRET_FILE needs LEASEHOLD_OIDC_CLIENT_ID');
    return;
  }
  if (!auth.includes('jwt') || jwtIssuer === undefined || publicUrl === undefined)
    throw new ConfigError(
      'LEASEHOLD_OIDC_CLIENT_ID needs LEASEHOLD_PUBLIC_URL, LEASEHOLD_JWT_ISSUER, and jwt in LEASEHOLD_AUTH',
    );
  if (!URL.canParse(jwtIssuer))
    throw new ConfigError('LEASEHOLD_OIDC_CLIENT_ID needs an address as LEASEHOLD_JWT_ISSUER');
  await checkSecure('LEASEHOLD_JWT_ISSUER', new URL(jwtIssuer));
  await checkSecure('LEASEHOLD_PUBLIC_URL', new URL(publicUrl));
}

/** Who can change the keys or a login on their way can be any caller. */
async function checkSecure(variable: string, { protocol, hostname, port }: URL): Promise<void> {
  const host = hostname.replace(/^\[|\]$/g, '');
  if (protocol !== 'https:' && !(await isOnLoopback({ host, port: Number(port) })))
    throw new ConfigError(`${variable} must begin with https, beyond this machine`);
}

async function isOnLoopback({ host }: Address): Promise<boolean> {
  const addresses = await lookup(host, { all: true }).catch((cause: unknown) => {
    throw new ConfigError(`the host ${host} cannot be resolved: ${(cause as Error).message}`);
  });
  return addresses.every(({ address }) => isLoopback(address));
}

/** Browsers name the public host in their requests. */
export const publicHostOf = ({ publicUrl }: Config): string[] =>
  publicUrl === undefined ? [] : [new URL(publicUrl).hostname.replace(/^\[|\]$/g, '')];
