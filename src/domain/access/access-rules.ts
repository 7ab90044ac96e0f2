/**
 * The rules that give identities of other issuers their rights. The first rule that matches an identity
 * counts; an identity that none matches may do nothing.
 */
import { serverLimits } from './key-limits.ts';
import type { Principal } from './principal.ts';
import type { Role } from './roles.ts';
import { isPrefix, matches, type Scopes } from './scopes.ts';

/** A verified token. */
export interface TokenIdentity {
  kind: 'jwt';
  subject: string;
  issuer: string;
  claims: Readonly<Record<string, unknown>>;
  expiresAtMs: number;
}

/** A verified client certificate. */
export interface CertificateIdentity {
  kind: 'cert';
  uris: readonly string[];
  dnsNames: readonly string[];
  expiresAtMs: number;
}

export type Identity = TokenIdentity | CertificateIdentity;

/**
 * What a claim must be. A text is an exact value, or a prefix that ends in `*`; of a list one must match, and
 * of an object every member. Where the token has a list, one of its elements must match.
 */
export type ClaimPattern =
  | string
  | number
  | boolean
  | readonly (string | number | boolean)[]
  | { readonly [member: string]: ClaimPattern };

/** Each part that is present must match. A rule names claims, or parts of a certificate, never both. */
export interface RuleCondition {
  claims?: Readonly<Record<string, ClaimPattern>>;
  spiffe_id?: string;
  dns_name?: string;
}

export interface AccessRule {
  when: RuleCondition;
  roles: readonly Role[];
  scopes: Scopes;
  workerIds: readonly string[];
  seesPayloads: boolean;
}

export type AccessRules = readonly AccessRule[];

/** What a rule gives, and the name of the identity that it has matched. */
export interface RuleMatch {
  rule: AccessRule;
  name: string;
}

export function firstMatch(rules: AccessRules, identity: Identity): RuleMatch | undefined {
  for (const rule of rules) {
    const name = identity.kind === 'jwt' ? matchToken(rule, identity) : matchCertificate(rule, identity);
    if (name !== undefined) return { rule, name };
  }
  return undefined;
}

function matchToken({ when: { claims } }: AccessRule, identity: TokenIdentity): string | undefined {
  return claims && isObjectMatch(claims, identity.claims) ? identity.subject : undefined;
}

/** A rule for both names asks for both; the SPIFFE id is then the name of the identity. */
function matchCertificate(
  { when: { spiffe_id: spiffeId, dns_name: dnsName } }: AccessRule,
  { uris, dnsNames }: CertificateIdentity,
): string | undefined {
  const uri = spiffeId === undefined ? undefined : uris.find((one) => isSpiffeMatch(spiffeId, one));
  const dns = dnsName === undefined ? undefined : dnsNames.find((one) => matches([dnsName], one));
  if (spiffeId !== undefined && uri === undefined) return undefined;
  if (dnsName !== undefined && dns === undefined) return undefined;
  return uri ?? dns;
}

/** A trust domain, and a path of segments that are neither empty nor `.` or `..`. */
const spiffeForm = /^spiffe:\/\/[a-z0-9._-]+(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._-]+)+$/;

const isSpiffeMatch = (pattern: string, uri: string): boolean =>
  spiffeForm.test(uri) && matches([pattern], uri);

const isObjectMatch = (
  pattern: Readonly<Record<string, ClaimPattern>>,
  value: Readonly<Record<string, unknown>>,
): boolean =>
  Object.entries(pattern).every(
    ([name, wanted]) => Object.hasOwn(value, name) && isClaimMatch(wanted, value[name]),
  );

function isClaimMatch(pattern: ClaimPattern, value: unknown): boolean {
  if (Array.isArray(value)) return value.some((one) => !Array.isArray(one) && isClaimMatch(pattern, one));
  if (isList(pattern)) return pattern.some((one) => isClaimMatch(one, value));
  if (typeof pattern === 'object')
    return typeof value === 'object' && value !== null && isObjectMatch(pattern, value as never);
  if (typeof pattern !== 'string' || typeof value !== 'string') return pattern === value;
  return isPrefix(pattern) ? matches([pattern], value) : pattern === value;
}

const isList = (pattern: ClaimPattern): pattern is readonly (string | number | boolean)[] =>
  Array.isArray(pattern);

/** The principal of an identity that a rule matches. `holder` identifies it in leases. */
export const principalOf = (
  { kind, expiresAtMs }: Identity,
  { rule, name }: RuleMatch,
  holder: string,
): Principal => ({
  kind,
  id: name,
  name,
  roles: rule.roles,
  scopes: rule.scopes,
  workerIds: rule.workerIds,
  seesPayloads: rule.seesPayloads,
  limits: serverLimits,
  holder,
  expiresAtMs,
});
