/**
 * Builds what verifies tokens and certificates, as configured. The library for tokens is loaded only where
 * tokens are accepted.
 */
import type { AccessRules } from '../../../domain/access/access-rules.ts';
import { parseAccessRules } from '../../../domain/requests/access-rules.ts';
import type { Service } from '../../../lib/async/service.ts';
import type { Log } from '../../../lib/log.ts';
import { ReloadedFile } from '../../../lib/net/reloaded-file.ts';
import type { TokenVerifier } from '../authenticator.ts';
import { IdentityMapper } from './identity-mapper.ts';
import type { IssuerKeys } from './token-verifier.ts';

export interface IdentitySettings {
  auth: readonly ('keys' | 'jwt' | 'mtls')[];
  accessRulesFile: string | undefined;
  jwtIssuer: string | undefined;
  jwtAudience: string | undefined;
  jwtJwksUrl: string | undefined;
  jwtJwksFile: string | undefined;
  jwtCaFile: string | undefined;
  jwtAlgorithms: readonly string[];
  jwtMaxAgeS: number;
  /** How often files are looked at for changes. */
  tlsReloadS: number;
}

export interface Identities {
  mapper: IdentityMapper;
  tokens: TokenVerifier | undefined;
  /** Whether client certificates are identities. */
  takesCertificates: boolean;
  services: readonly Pick<Service, 'start' | 'stop'>[];
}

/** Undefined if neither tokens nor certificates are configured. Throws if they cannot be in force. */
export async function openIdentities(settings: IdentitySettings, log: Log): Promise<Identities | undefined> {
  const { auth, accessRulesFile } = settings;
  const ways = auth.filter((way) => way !== 'keys');
  if (ways.length === 0) return undefined;
  if (accessRulesFile === undefined)
    throw new Error(`LEASEHOLD_AUTH has ${ways.join(' and ')}: set LEASEHOLD_ACCESS_RULES_FILE`);
  const rules = await ReloadedFile.open({
    variable: 'LEASEHOLD_ACCESS_RULES_FILE',
    path: accessRulesFile,
    parse: (text) => rulesFor(ways, text),
    reloadMs: settings.tlsReloadS * 1_000,
    log,
  });
  const mapper = new IdentityMapper(() => rules.value);
  const tokens = auth.includes('jwt') ? await openTokens(settings, mapper, log) : undefined;
  return {
    mapper,
    tokens: tokens?.verifier,
    takesCertificates: auth.includes('mtls'),
    services: [rules, ...(tokens ? [tokens.keys] : [])],
  };
}

/** Rules that can match no caller are a mistake. */
function rulesFor(ways: readonly string[], text: string): AccessRules {
  const rules = parseAccessRules(text);
  if (ways.includes('jwt') && !rules.some(({ when }) => when.claims))
    throw new Error('no rule has claims, and LEASEHOLD_AUTH has jwt');
  if (ways.includes('mtls') && rules.every(({ when }) => when.claims))
    throw new Error('no rule has spiffe_id or dns_name, and LEASEHOLD_AUTH has mtls');
  return rules;
}

type KeySource = IssuerKeys & Pick<Service, 'start' | 'stop'>;

async function openTokens(
  settings: IdentitySettings,
  mapper: IdentityMapper,
  log: Log,
): Promise<{ verifier: TokenVerifier; keys: KeySource }> {
  const { jwtIssuer: issuer, jwtAudience: audience } = settings;
  if (issuer === undefined || audience === undefined)
    throw new Error('LEASEHOLD_AUTH has jwt: set LEASEHOLD_JWT_ISSUER and LEASEHOLD_JWT_AUDIENCE');
  const { JwtVerifier } = await import('./token-verifier.ts');
  const keys = await openKeys(settings, log);
  const verifier = new JwtVerifier({
    keys,
    issuer,
    audience,
    algorithms: settings.jwtAlgorithms,
    maxAgeS: settings.jwtMaxAgeS,
    principalOf: (identity) => mapper.principalOf(identity),
  });
  return { verifier, keys };
}

async function openKeys(settings: IdentitySettings, log: Log): Promise<KeySource> {
  const { jwtJwksUrl: url, jwtJwksFile: path, jwtCaFile: caFile, tlsReloadS } = settings;
  if (url !== undefined) {
    const { RemoteKeySet } = await import('./remote-key-set.ts');
    return RemoteKeySet.open({ url, caFile, log });
  }
  if (path === undefined)
    throw new Error('LEASEHOLD_AUTH has jwt: set LEASEHOLD_JWT_JWKS_URL or LEASEHOLD_JWT_JWKS_FILE');
  const { parseKeySet } = await import('./key-set.ts');
  const variable = 'LEASEHOLD_JWT_JWKS_FILE';
  const file = await ReloadedFile.open({
    variable,
    path,
    parse: parseKeySet,
    reloadMs: tlsReloadS * 1_000,
    log,
  });
  return {
    find: (header, token) => file.value(header, token),
    onChange: (listener) => file.onChange(listener),
    start: () => file.start(),
    stop: () => file.stop(),
  };
}
