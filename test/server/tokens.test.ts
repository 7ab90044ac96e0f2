/**
 * Tokens of a real issuer, over gRPC, Connect and REST: each way in gives the same verdict, and a stream ends
 * with its token.
 */
import { createHmac, randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { base64url } from 'jose';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { failure } from '../support/failure.ts';
import { everywhere, replaceRules, verdictOf, writeRules } from '../support/identities.ts';
import { Issuer, newSigningKey, type SigningKey } from '../support/issuer.ts';
import { createKey, startKeyedServer } from '../support/keys.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';

const shopRule = {
  when: { claims: { sub: 'shop*' } },
  roles: ['submitter'],
  scopes: { addon_ids: ['shop'], job_types: ['*'] },
};
const opsRule = {
  when: { claims: { groups: 'ops' } },
  roles: ['operator'],
  scopes: { addon_ids: ['*'], streams: ['*'], job_types: ['*'], repositories: ['*'] },
};

const workerRule = {
  when: { claims: { sub: 'worker-*' } },
  roles: ['worker', 'submitter'],
  scopes: { addon_ids: ['shop'], job_types: ['*'], streams: ['*'] },
  worker_ids: ['w-*'],
};
const allRules = [shopRule, opsRule, workerRule];

describe('tokens of an identity provider', () => {
  onEveryEngine((engine) => {
    let issuer: Issuer;
    let rules: string;

    let usual: TestServer;

    before(async () => {
      issuer = await Issuer.start();
      rules = await writeRules(...allRules);
      usual = await start();
    });
    after(async () => {
      await usual.stop();
      await issuer.stop();
    });
    afterEach(async () => {
      issuer.mood = 'well';
      await replaceRules(rules, ...allRules);
    });

    const start = (more: object = {}) =>
      startTestServer(engine, {
        settings: { ...issuer.settings(rules), tlsReloadS: 1, rateAnonymous: 0, ...more },
      });

    it('are callers with the rights of the first rule that matches, or with none', async () => {
      const on = usual;
      expect(await verdictOf(on, await issuer.token())).to.deep.equal(everywhere('jwt shop'));
      expect(await verdictOf(on, await issuer.token({ sub: 'root' }))).to.deep.equal(
        everywhere('permission_denied'),
      );
      const submit = async (addonId: string, token: string) => {
        const response = await fetch(`${on.http}/api/scheduler/jobs/submit`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
          body: JSON.stringify({ addon_id: addonId, job_type: 'x', cost_units: 1 }),
        });
        return response.status;
      };
      const shop = await issuer.token({ sub: 'shop-1' });
      expect([await submit('shop', shop), await submit('other', shop)]).to.deep.equal([201, 403]);
      const ops = await issuer.token({ sub: 'eve', groups: ['dev', 'ops'] });
      expect(await submit('other', ops)).to.equal(201);
    });

    it('keep the leases of their subject, whose next token counts for them', async () => {
      const clientOf = async (sub: string) => {
        const token = await issuer.token({ sub, jti: randomUUID() });
        return connectLeasehold(usual.grpc, { apiKey: () => token });
      };
      const [first, next, other] = [
        await clientOf('worker-1'),
        await clientOf('worker-1'),
        await clientOf('worker-2'),
      ];
      try {
        await first.jobs.submitJob({ addonId: 'shop', jobType: 'own', costUnits: 1 });
        const { outcome } = await first.leases.acquireLease({ workerId: 'w-1', acceptJobTypes: ['own'] });
        if (outcome.case !== 'granted') throw new Error('no lease was granted');
        const worker = { leaseId: outcome.value.lease?.leaseId ?? '', workerId: 'w-1' };
        await next.leases.heartbeat(worker);
        expect(String(await failure(other.leases.heartbeat(worker)))).to.include('lease_not_found');
      } finally {
        for (const client of [first, next, other]) client.close();
      }
    });

    it('count only if everything about them is right, by every way in', async () => {
      const on = usual;
      const nowS = Math.floor(Date.now() / 1_000);
      const key = issuer.keys.at(-1) as SigningKey;
      const part = (value: object) => base64url.encode(JSON.stringify(value));
      const good = await issuer.token();
      const [, body] = good.split('.') as [string, string, string];
      const secret = JSON.stringify(key.publicJwk);
      const hmac = `${part({ alg: 'HS256', kid: key.kid })}.${body}`;
      const mac = createHmac('sha256', secret).update(hmac).digest('base64url');
      const wrong: Record<string, string> = {
        'no token': '',
        'an unsigned token': `${part({ alg: 'none' })}.${body}.`,
        'a public key as a secret': `${hmac}.${mac}`,
        'another algorithm': await issuer.token({}, await newSigningKey(key.kid, 'ES384')),
        'the key of another': await issuer.token({}, await newSigningKey(key.kid)),
        'an unknown key': await issuer.token({}, await newSigningKey('unknown')),
        'a kid that is a path': await issuer.token({}, await newSigningKey('../../../dev/null')),
        'another issuer': await issuer.token({ iss: 'https://other.test' }),
        'another audience': await issuer.token({ aud: 'other' }),
        'no subject': await issuer.token({ sub: undefined }),
        'an end in the past': await issuer.token({ exp: nowS - 60 }),
        'a beginning in the future': await issuer.token({ nbf: nowS + 60 }),
        'a huge token': await issuer.token({ filler: 'x'.repeat(8_000) }),
        'a key, where keys are off': `lhk_${'a'.repeat(12)}_${'b'.repeat(49)}`,
      };
      for (const [name, token] of Object.entries(wrong))
        expect(await verdictOf(on, token), name).to.deep.equal(everywhere('unauthenticated'));
      expect(await verdictOf(on, good)).to.deep.equal(everywhere('jwt shop'));
    });

    it('are verified without an answer of the issuer if their key is known, or refused', async () => {
      const on = usual;
      const next = await newSigningKey('next');
      issuer.keys = [next, ...issuer.keys];
      issuer.mood = 'silent';
      expect(await verdictOf(on, await issuer.token())).to.deep.equal(everywhere('jwt shop'));
      expect(await verdictOf(on, await issuer.token({}, next)), 'the issuer does not answer').to.deep.equal(
        everywhere('unauthenticated'),
      );
    }).timeout(60_000);

    it('are known beside keys, and keys beside them', async () => {
      await using on = await startKeyedServer(engine, {
        settings: { ...issuer.settings(rules), auth: ['keys', 'jwt'] },
      });
      expect(await verdictOf(on, await issuer.token())).to.deep.equal(everywhere('jwt shop'));
      expect(await verdictOf(on, on.admin.text)).to.deep.equal(everywhere(`key ${on.admin.keyId}`));
      await using other = await start({ auth: ['keys', 'jwt'] });
      expect(await verdictOf(other, await issuer.token()), 'no key is needed').to.deep.equal(
        everywhere('jwt shop'),
      );
      const key = await createKey(other.database, { name: 'later', roles: ['admin'] });
      await eventually('the key is known', async () =>
        (await verdictOf(other, key.text)).rest.startsWith('key') ? true : undefined,
      );
    });

    it('end their streams when they expire, or when the rules give them other rights', async () => {
      const on = usual;
      const nowS = Math.floor(Date.now() / 1_000);
      const watch = async (token: string) => {
        const client = connectLeasehold(on.grpc, { apiKey: () => token });
        try {
          let seen = 0;
          for await (const _ of client.stats.watchSnapshots({})) seen++;
          return `ended after ${seen}`;
        } catch (error) {
          return `${error}`;
        } finally {
          client.close();
        }
      };
      const overConnect = async (token: string) => {
        const response = await fetch(`${on.http}/leasehold.v1.StatsService/WatchSnapshots`, {
          method: 'POST',
          headers: { 'content-type': 'application/connect+json', authorization: `Bearer ${token}` },
          body: Buffer.from([0, 0, 0, 0, 2, 0x7b, 0x7d]),
        });
        return response.text();
      };
      const short = await issuer.token({ groups: ['ops'], sub: 'short', exp: nowS + 3 });
      const long = await issuer.token({ groups: ['ops'], sub: 'long' });
      const [other, ...ended] = [watch(long), watch(short), overConnect(short)];
      for (const end of await Promise.all(ended)) expect(end).to.include('unauthenticated');
      expect(Date.now() / 1_000, 'not before its end').to.be.at.least(nowS + 3);
      let isOver = false;
      void other?.then(() => {
        isOver = true;
      });
      expect(isOver, 'another token goes on').to.equal(false);
      await replaceRules(rules, shopRule);
      expect(await other).to.include('unauthenticated');
      expect(await verdictOf(on, long)).to.deep.equal(everywhere('permission_denied'));
    }).timeout(30_000);

    it('keep their rights while a new file of rules cannot be used', async () => {
      const on = usual;
      const token = await issuer.token({ sub: 'shop-3' });
      const complaint = (words: string) =>
        eventually(words, async () =>
          on.complaints.find((line) => line.variable === 'LEASEHOLD_ACCESS_RULES_FILE'),
        );
      await replaceRules(rules);
      expect(JSON.stringify(await complaint('the complaint'))).to.include('must have at least 1 item');
      expect(await verdictOf(on, token)).to.deep.equal(everywhere('jwt shop-3'));
      await replaceRules(rules, { ...shopRule, when: { claims: { sub: 'none' } } });
      await eventually('the new rules', async () =>
        (await verdictOf(on, token)).grpc === 'permission_denied' ? true : undefined,
      );
    });

    it('stop the start where they cannot be in force', async () => {
      const settings = { accessRulesFile: await writeRules() };
      expect(String(await failure(start(settings)))).to.include(
        'LEASEHOLD_ACCESS_RULES_FILE: rules: must have at least 1 item',
      );
    });

    it('are verified with the keys of a file, which is read again', async () => {
      const file = rules.replace('rules.json', 'jwks.json');
      const write = () =>
        writeFile(file, JSON.stringify({ keys: issuer.keys.map(({ publicJwk }) => publicJwk) }));
      await write();
      await using on = await start({ jwtJwksUrl: undefined, jwtJwksFile: file });
      const before = await issuer.token();
      expect(await verdictOf(on, before)).to.deep.equal(everywhere('jwt shop'));
      issuer.keys = [await newSigningKey('next')];
      await write();
      const after = await issuer.token();
      await eventually('the new key', async () =>
        (await verdictOf(on, after)).rest === 'jwt shop' ? true : undefined,
      );
      expect(await verdictOf(on, before), 'its key was withdrawn').to.deep.equal(
        everywhere('unauthenticated'),
      );
      await rm(file);
      expect(await verdictOf(on, after)).to.deep.equal(everywhere('jwt shop'));
    });
  });
});
