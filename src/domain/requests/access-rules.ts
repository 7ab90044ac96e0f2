/** Reads the file of access rules. Every error names the place in the file and what is allowed there. */
import Type from 'typebox';
import type { AccessRule, AccessRules, ClaimPattern } from '../access/access-rules.ts';
import { roles } from '../access/roles.ts';
import { scopeKinds } from '../access/scopes.ts';
import { DomainError, printable } from '../errors.ts';
import { limits } from '../limits.ts';
import { maxJsonDepth } from './json-check.ts';
import { parser } from './validator.ts';

/** The most rules of a file: they are tried in turn. */
const rulesMax = 1_000;
const patternsMax = 100;

const patterns = Type.Array(Type.String({ minLength: 1, maxLength: limits.nameChars }), {
  maxItems: patternsMax,
});

const Rules = Type.Object({
  rules: Type.Array(
    Type.Object({
      name: Type.Optional(Type.String({ maxLength: limits.nameChars })),
      when: Type.Object({
        claims: Type.Optional(Type.Object({}, { minProperties: 1 })),
        spiffe_id: Type.Optional(Type.String({ minLength: 1, maxLength: 2_048 })),
        dns_name: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
      }),
      roles: Type.Array(Type.Enum([...roles]), { minItems: 1, maxItems: roles.length }),
      scopes: Type.Optional(
        Type.Object({
          addon_ids: Type.Optional(patterns),
          streams: Type.Optional(patterns),
          job_types: Type.Optional(patterns),
          repositories: Type.Optional(patterns),
        }),
      ),
      worker_ids: Type.Optional(patterns),
      sees_payloads: Type.Optional(Type.Boolean()),
    }),
    { minItems: 1, maxItems: rulesMax },
  ),
});

type RuleBody = Type.Static<typeof Rules>['rules'][number];

const parse = parser(Rules);

export function parseAccessRules(text: string): AccessRules {
  const body = checked(parseJson(text));
  expectNames(body, ['rules'], '');
  return body.rules.map((rule, index) => ruleOf(rule, `rules[${index}]`));
}

/** The file is no request, so its errors have no code. */
function checked(value: unknown): Type.Static<typeof Rules> {
  try {
    return parse(value);
  } catch (error) {
    throw error instanceof DomainError ? new Error(error.detail) : error;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`is not JSON: ${(cause as Error).message}`, { cause });
  }
}

function ruleOf(body: RuleBody, at: string): AccessRule {
  expectNames(body, ['name', 'when', 'roles', 'scopes', 'worker_ids', 'sees_payloads'], at);
  const { when, scopes = {}, worker_ids, sees_payloads = false } = body;
  expectNames(when, ['claims', 'spiffe_id', 'dns_name'], `${at}.when`);
  expectNames(scopes, scopeKinds, `${at}.scopes`);
  const { claims, spiffe_id, dns_name } = when;
  if (claims === undefined && spiffe_id === undefined && dns_name === undefined)
    throw new Error(`${at}.when: needs claims, spiffe_id or dns_name`);
  if (claims !== undefined && (spiffe_id !== undefined || dns_name !== undefined))
    throw new Error(`${at}.when: claims are of tokens and the other names of certificates; use two rules`);
  if (claims !== undefined) checkClaims(claims, `${at}.when.claims`);
  if (spiffe_id !== undefined && !/^spiffe:\/\/[a-z0-9._-]+\/[A-Za-z0-9._/-]*\*?$/.test(spiffe_id))
    throw new Error(
      `${at}.when.spiffe_id: must be spiffe://<trust domain>/<path>, or such a prefix that ends in *, ` +
        `not ${printable(spiffe_id)}`,
    );
  if (dns_name !== undefined && !/^[a-z0-9._-]+\*?$/i.test(dns_name))
    throw new Error(
      `${at}.when.dns_name: must be a name, or a prefix that ends in *, not ${printable(dns_name)}`,
    );
  for (const kind of scopeKinds) checkPatterns(scopes[kind], `${at}.scopes.${kind}`);
  checkPatterns(worker_ids, `${at}.worker_ids`);
  const isAdmin = body.roles.includes('admin');
  if (worker_ids === undefined && body.roles.includes('worker') && !isAdmin)
    throw new Error(`${at}.worker_ids: is required for the role worker`);
  return {
    when: {
      ...(claims === undefined ? {} : { claims: claims as Record<string, ClaimPattern> }),
      ...(spiffe_id === undefined ? {} : { spiffe_id }),
      ...(dns_name === undefined ? {} : { dns_name: dns_name.toLowerCase() }),
    },
    roles: body.roles,
    scopes: {
      addon_ids: scopes.addon_ids ?? [],
      streams: scopes.streams ?? [],
      job_types: scopes.job_types ?? [],
      repositories: scopes.repositories ?? [],
    },
    workerIds: worker_ids ?? (isAdmin ? ['*'] : []),
    seesPayloads: sees_payloads,
  };
}

/** A misspelt name would be a rule that gives more, or less, than its author thinks. */
function expectNames(value: object, names: readonly string[], at: string): void {
  const unknown = Object.keys(value).find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new Error(`${at === '' ? unknown : `${at}.${unknown}`}: is unknown; known are ${names.join(', ')}`);
}

function checkPatterns(patterns: readonly string[] | undefined, at: string): void {
  const wrong = patterns?.findIndex((pattern) => !/^[^*]*\*?$/.test(pattern)) ?? -1;
  if (wrong >= 0)
    throw new Error(
      `${at}[${wrong}]: must be a name, or a prefix that ends in *, not ${printable(patterns?.[wrong])}`,
    );
}

function checkClaims(claims: object, at: string, depth = 0): void {
  if (depth > maxJsonDepth) throw new Error(`${at}: is nested too deeply`);
  if (Object.keys(claims).length === 0) throw new Error(`${at}: must name a claim`);
  for (const [name, pattern] of Object.entries(claims)) checkClaim(pattern, `${at}.${name}`, depth);
}

function checkClaim(pattern: unknown, at: string, depth: number): void {
  if (typeof pattern === 'boolean' || typeof pattern === 'number') return;
  if (typeof pattern === 'string') {
    // `*` alone would match every value, and inside of a text it would match nothing.
    if (/^[^*]+\*?$/.test(pattern)) return;
    throw new Error(`${at}: must be a value, or a prefix that ends in *, not ${printable(pattern)}`);
  }
  if (Array.isArray(pattern)) {
    if (pattern.length === 0) throw new Error(`${at}: must have a value`);
    pattern.forEach((one, index) => {
      if (typeof one === 'object') throw new Error(`${at}[${index}]: must be a text, a number or a boolean`);
      checkClaim(one, `${at}[${index}]`, depth);
    });
    return;
  }
  if (pattern === null || typeof pattern !== 'object')
    throw new Error(`${at}: must be a text, a number, a boolean, a list or an object`);
  checkClaims(pattern, at, depth + 1);
}
