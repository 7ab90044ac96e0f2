/** The guarantee: the first rule that matches an identity counts, and no rule matches more than it says. */
import { expect } from 'chai';
import { firstMatch, type Identity } from '../../../src/domain/access/access-rules.ts';
import { parseAccessRules } from '../../../src/domain/requests/access-rules.ts';

const rule = (when: object, more: object = {}) => ({ when, roles: ['observer'], ...more });
const rulesOf = (...rules: object[]) => parseAccessRules(JSON.stringify({ rules }));

const token = (claims: object): Identity => ({
  kind: 'jwt',
  subject: 'shop',
  issuer: 'https://issuer.test',
  claims: { sub: 'shop', ...claims },
  expiresAtMs: 0,
});
const certificate = (uris: string[], dnsNames: string[] = []): Identity => ({
  kind: 'cert',
  uris,
  dnsNames,
  expiresAtMs: 0,
});

describe('the rules of access', () => {
  const isMatch = (claims: object, found: object): boolean =>
    firstMatch(rulesOf(rule({ claims })), token(found)) !== undefined;

  it('match a claim by its value, by a prefix, by one of a list, and inside of objects', () => {
    expect(isMatch({ sub: 'shop' }, {})).to.equal(true);
    expect(isMatch({ sub: 'sh*' }, {})).to.equal(true);
    expect(isMatch({ sub: ['other', 'shop'] }, {})).to.equal(true);
    expect(isMatch({ groups: 'ops' }, { groups: ['dev', 'ops'] })).to.equal(true);
    expect(isMatch({ admin: true, level: 3 }, { admin: true, level: 3 })).to.equal(true);
    const found = { 'kubernetes.io': { namespace: 'jobs', serviceaccount: { name: 'gpu', uid: '1' } } };
    expect(
      isMatch({ 'kubernetes.io': { namespace: 'jobs', serviceaccount: { name: 'gpu*' } } }, found),
    ).to.equal(true);
    expect(isMatch({ realm_access: { roles: 'lease' } }, { realm_access: { roles: ['lease'] } })).to.equal(
      true,
    );
  });

  it('do not match other types, parts, inherited names, or a claim that is absent', () => {
    const wrong: [object, object][] = [
      [{ sub: 'sho' }, {}],
      [{ sub: 'shop2' }, {}],
      [{ sub: 'SHOP' }, {}],
      [{ sub: 'shop', tenant: 'red' }, {}],
      [{ tenant: 'red*' }, { tenant: undefined }],
      [{ tenant: 'red*' }, { tenant: { red: 1 } }],
      [{ level: '3' }, { level: 3 }],
      [{ admin: true }, { admin: 'true' }],
      [{ groups: 'ops' }, { groups: 'dev ops' }],
      [{ groups: 'ops' }, { groups: [['ops']] }],
      [{ groups: { ops: true } }, { groups: 'ops' }],
      [{ constructor: { name: 'Object' } }, {}],
      [{ a: { b: 'c' } }, { a: null }],
    ];
    for (const [claims, found] of wrong)
      expect(isMatch(claims, found), JSON.stringify([claims, found])).to.equal(false);
  });

  it('match a certificate by its SPIFFE id, its DNS name, or both', () => {
    const match = (when: object, identity: Identity) => firstMatch(rulesOf(rule(when)), identity)?.name;
    const gpu = 'spiffe://prod.test/ns/jobs/sa/gpu';
    expect(match({ spiffe_id: gpu }, certificate([gpu]))).to.equal(gpu);
    expect(match({ spiffe_id: 'spiffe://prod.test/ns/jobs/*' }, certificate([gpu]))).to.equal(gpu);
    expect(match({ dns_name: 'GPU-1.jobs.test' }, certificate([], ['a.test', 'gpu-1.jobs.test']))).to.equal(
      'gpu-1.jobs.test',
    );
    expect(match({ dns_name: 'gpu-*' }, certificate([], ['gpu-1.jobs.test']))).to.equal('gpu-1.jobs.test');
    const both = { spiffe_id: gpu, dns_name: 'gpu.test' };
    expect(match(both, certificate([gpu], ['gpu.test']))).to.equal(gpu);
    expect(match(both, certificate([gpu], ['other.test']))).to.equal(undefined);
    expect(match(both, certificate([], ['gpu.test']))).to.equal(undefined);
    for (const uri of [
      'spiffe://prod.test/ns/jobs/../ops/sa/gpu',
      'spiffe://prod.test/ns/jobs/./gpu',
      'spiffe://prod.test/ns/jobs//gpu',
      'spiffe://prod.test/ns/jobs/',
      'spiffe://prod.test/ns/jobs/%67pu',
      'spiffe://prod.test.evil/ns/jobs/gpu',
      'SPIFFE://prod.test/ns/jobs/gpu',
      'https://prod.test/ns/jobs/gpu',
    ])
      expect(match({ spiffe_id: 'spiffe://prod.test/ns/jobs/*' }, certificate([uri])), uri).to.equal(
        undefined,
      );
    expect(match({ claims: { sub: 'shop' } }, certificate([gpu]))).to.equal(undefined);
    expect(match({ dns_name: 'shop' }, token({ dns_name: 'shop' }))).to.equal(undefined);
  });

  it('are tried in turn, and the first that matches counts', () => {
    const rules = rulesOf(
      rule({ claims: { sub: 'other' } }, { roles: ['admin'] }),
      rule({ claims: { sub: 'sh*' } }, { roles: ['submitter'], scopes: { addon_ids: ['shop'] } }),
      rule({ claims: { sub: 'shop' } }, { roles: ['admin'] }),
    );
    const found = firstMatch(rules, token({}))?.rule;
    expect(found).to.deep.include({ roles: ['submitter'], workerIds: [], seesPayloads: false });
    expect(found?.scopes).to.deep.equal({
      addon_ids: ['shop'],
      streams: [],
      job_types: [],
      repositories: [],
    });
    expect(firstMatch(rules, token({ sub: 'nobody' }))).to.equal(undefined);
  });
});

describe('the file of access rules', () => {
  it('is refused with the place that is wrong', () => {
    const wrong: [string, string][] = [
      ['', 'is not JSON'],
      ['[]', 'body: must be a JSON object'],
      ['{}', 'rules: is required'],
      ['{"rules": []}', 'rules: must have at least 1 item'],
      ['{"rules": [{}], "rule": 1}', 'rules[0].when: is required'],
      [JSON.stringify({ rules: [rule({ dns_name: 'a' })], more: 1 }), 'more: is unknown; known are rules'],
    ];
    const first: [object, string][] = [
      [rule({}), 'rules[0].when: needs claims, spiffe_id or dns_name'],
      [rule({ claims: { sub: 'a' }, dns_name: 'b' }), 'rules[0].when: claims are of tokens'],
      [rule({ subject: 'a' }), 'rules[0].when.subject: is unknown'],
      [rule({ claims: {} }), 'rules[0].when.claims'],
      [rule({ claims: { sub: '*' } }), 'rules[0].when.claims.sub: must be a value, or a prefix'],
      [rule({ claims: { sub: '*.test' } }), 'rules[0].when.claims.sub: must be a value, or a prefix'],
      [rule({ claims: { a: { b: [] } } }), 'rules[0].when.claims.a.b: must have a value'],
      [rule({ claims: { a: [{}] } }), 'rules[0].when.claims.a[0]: must be a text'],
      [rule({ claims: { a: null } }), 'rules[0].when.claims.a: must be a text'],
      [rule({ spiffe_id: 'spiffe://prod*' }), 'rules[0].when.spiffe_id: must be spiffe://'],
      [rule({ spiffe_id: 'https://prod/a' }), 'rules[0].when.spiffe_id: must be spiffe://'],
      [rule({ dns_name: '*.test' }), 'rules[0].when.dns_name: must be a name'],
      [{ when: { dns_name: 'a' }, roles: ['boss'] }, 'rules[0].roles[0]: must be one of submitter, worker'],
      [{ when: { dns_name: 'a' }, roles: [] }, 'rules[0].roles: must have at least 1 item'],
      [rule({ dns_name: 'a' }, { role: 'admin' }), 'rules[0].role: is unknown'],
      [rule({ dns_name: 'a' }, { scopes: { addons: ['*'] } }), 'rules[0].scopes.addons: is unknown'],
      [
        rule({ dns_name: 'a' }, { scopes: { streams: ['a*b'] } }),
        'rules[0].scopes.streams[0]: must be a name',
      ],
      [rule({ dns_name: 'a' }, { worker_ids: ['*a'] }), 'rules[0].worker_ids[0]: must be a name'],
      [
        rule({ dns_name: 'a' }, { roles: ['worker'] }),
        'rules[0].worker_ids: is required for the role worker',
      ],
    ];
    for (const [body, words] of first) wrong.push([JSON.stringify({ rules: [body] }), words]);
    for (const [text, words] of wrong) expect(() => parseAccessRules(text), text).to.throw(words);
  });
});
