/** The guarantee: the rules that docs/security.md shows can be used as they are, and match what it says. */
import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { firstMatch } from '../../src/domain/access/access-rules.ts';
import { parseAccessRules } from '../../src/domain/requests/access-rules.ts';

describe('the access rules of the documentation', () => {
  it('can be used, and match a pod, a person and a service', async () => {
    const page = await readFile(new URL('../../docs/security.md', import.meta.url), 'utf8');
    const [, text = ''] = /```json\n(.*?)```/s.exec(page) ?? [];
    const rules = parseAccessRules(text);
    const roleOf = (claims: object) => {
      const token = {
        kind: 'jwt' as const,
        subject: 's',
        issuer: 'i',
        claims: { ...claims },
        expiresAtMs: 0,
      };
      return firstMatch(rules, token)?.rule.roles[0];
    };
    expect(roleOf({ sub: 'system:serviceaccount:jobs:render' })).to.equal('worker');
    expect(roleOf({ sub: 'system:serviceaccount:other:render' })).to.equal(undefined);
    expect(roleOf({ sub: 'f1', realm_access: { roles: ['user', 'leasehold-ops'] } })).to.equal('operator');
    const uris = ['spiffe://prod.example.org/ns/shop/sa/web'];
    expect(firstMatch(rules, { kind: 'cert', uris, dnsNames: [], expiresAtMs: 0 })?.rule.roles).to.deep.equal(
      ['submitter'],
    );
  });
});
