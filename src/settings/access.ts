/** The settings of how callers prove who they are: keys, tokens of an identity provider, and certificates. */
import { list, origin, path, plainText, setting, url, whole } from '../lib/setting-values.ts';

/** Algorithms with public keys. Shared secrets and unsigned tokens are never accepted. */
export const tokenAlgorithms = ['RS256', 'PS256', 'ES256', 'EdDSA'] as const;

export const authKinds = ['keys', 'jwt', 'mtls'] as const;

export const accessSettings = {
  auth: setting<readonly (typeof authKinds)[number][]>({
    variable: 'LEASEHOLD_AUTH',
    default: [],
    defaultText: 'none: every caller may do everything',
    about: 'How callers prove who they are: by keys, tokens of an identity provider, or client certificates.',
    ...list(authKinds),
  }),
  authRefreshS: setting({
    variable: 'LEASEHOLD_AUTH_REFRESH_S',
    default: 1,
    about: 'How often a server looks for changed keys, in seconds: so long a revoked key may still count.',
    ...whole(1, 5),
  }),
  adminKeyFile: setting<string | undefined>({
    variable: 'LEASEHOLD_ADMIN_KEY_FILE',
    default: undefined,
    defaultText: 'no file',
    about:
      'Where the first server writes a key for administrators, if there is none; readable by its user alone.',
    ...path,
  }),
  accessRulesFile: setting<string | undefined>({
    variable: 'LEASEHOLD_ACCESS_RULES_FILE',
    default: undefined,
    defaultText: 'no rules',
    about:
      'The rules, in JSON, that give tokens and client certificates their roles and scopes. The file is ' +
      'read again when it changes.',
    ...path,
  }),
  jwtIssuer: setting<string | undefined>({
    variable: 'LEASEHOLD_JWT_ISSUER',
    default: undefined,
    defaultText: 'no tokens',
    about: 'The issuer whose tokens count: exactly the claim iss.',
    ...plainText,
  }),
  jwtAudience: setting<string | undefined>({
    variable: 'LEASEHOLD_JWT_AUDIENCE',
    default: undefined,
    defaultText: 'no tokens',
    about: 'What the claim aud of a token must contain.',
    ...plainText,
  }),
  jwtJwksUrl: setting<string | undefined>({
    variable: 'LEASEHOLD_JWT_JWKS_URL',
    default: undefined,
    defaultText: 'the file of LEASEHOLD_JWT_JWKS_FILE',
    about: "Where the issuer's public keys are fetched from: over https, or from this machine.",
    ...url('https', ['https:', 'http:']),
  }),
  jwtJwksFile: setting<string | undefined>({
    variable: 'LEASEHOLD_JWT_JWKS_FILE',
    default: undefined,
    defaultText: 'the address of LEASEHOLD_JWT_JWKS_URL',
    about: "A file with the issuer's public keys, which is read again when it changes.",
    ...path,
  }),
  jwtCaFile: setting<string | undefined>({
    variable: 'LEASEHOLD_JWT_CA_FILE',
    default: undefined,
    defaultText: 'the authorities that Node knows',
    about: 'The authorities of the certificate at LEASEHOLD_JWT_JWKS_URL, in PEM.',
    ...path,
  }),
  jwtAlgorithms: setting<readonly (typeof tokenAlgorithms)[number][]>({
    variable: 'LEASEHOLD_JWT_ALGORITHMS',
    default: tokenAlgorithms,
    defaultText: tokenAlgorithms.join(','),
    about: 'The algorithms of signatures that count.',
    ...list(tokenAlgorithms),
  }),
  jwtMaxAgeS: setting({
    variable: 'LEASEHOLD_JWT_MAX_AGE_S',
    default: 0,
    about: 'How old a token may be by its claim iat, in seconds; 0 leaves it to its claim exp.',
    ...whole(0, 31_536_000),
  }),
  sessionTtlS: setting({
    variable: 'LEASEHOLD_SESSION_TTL_S',
    default: 43_200,
    about: 'How long a login in a browser lasts, in seconds. It ends earlier if it is unused for an hour.',
    ...whole(60, 604_800),
  }),
  oidcClientId: setting<string | undefined>({
    variable: 'LEASEHOLD_OIDC_CLIENT_ID',
    default: undefined,
    defaultText: 'no logins at an identity provider',
    about: 'The client that the issuer of LEASEHOLD_JWT_ISSUER knows the logins of browsers by.',
    ...plainText,
  }),
  oidcClientSecretFile: setting<string | undefined>({
    variable: 'LEASEHOLD_OIDC_CLIENT_SECRET_FILE',
    default: undefined,
    defaultText: 'a public client, which has no secret',
    about: 'A file with the secret of that client.',
    ...path,
  }),
  publicUrl: setting<string | undefined>({
    variable: 'LEASEHOLD_PUBLIC_URL',
    default: undefined,
    defaultText: 'no logins at an identity provider',
    about:
      'The origin under which browsers reach this server. Its host is allowed; the provider must know ' +
      '/api/access/callback there.',
    ...origin,
  }),
};
