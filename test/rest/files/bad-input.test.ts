import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  acquire,
  acquired,
  beat,
  filesPath,
  leasesOf,
  newOwner,
  newPath,
  release,
  repository,
  say,
} from '../../support/files-api.ts';
import { expectError, get, post } from '../../support/jobs-api.ts';
import type { TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the file contract: bad input', () => {
    // A server of its own: moving the clock of tens of thousands of rows would delay the other tests.
    const share = shareServer(engine, { maxClaims: 7 });
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => share.leave());

    const badPaths: Record<string, unknown> = {
      empty: '',
      blank: ' \t ',
      absolute: '/etc/passwd',
      'absolute on Windows': 'C:\\work\\a.ts',
      'a share': '\\\\host\\share',
      outside: '../sibling/a.ts',
      'outside after a while': 'a/../../b',
      'the root': 'a/..',
      'a dot': '.',
      'with NUL': 'a\0b',
      'with half a character': 'a\ud800b',
      'too long': 'x'.repeat(4_097),
      'too long in bytes': 'ä'.repeat(2_049),
      'no text': 7,
      nothing: null,
    };
    for (const [what, path] of Object.entries(badPaths)) {
      it(`refuses a path that is ${what}, names its position, and changes nothing`, async () => {
        const [owner, good] = [newOwner(), newPath()];
        const answer = await acquire(server, owner, [good, good, good, path as string]);
        expectError(answer, { status: 400, code: 'invalid_request', field: 'paths[3]' });
        expect(answer.body.detail).to.match(/^paths\[3\]/);
        expect(await leasesOf(server, owner)).to.deep.equal([]);
      });
    }

    it('keeps unusual Unicode in paths as it is, each form as a different file', async () => {
      const owner = newOwner();
      const odd = [
        'é.ts',
        'e\u0301.ts',
        '👩‍👩‍👧.ts',
        '\u202Egnp.ts',
        'a\nb.ts',
        "o'clock.ts",
        'x'.repeat(4_096),
      ];
      const leases = await acquired(server, 'granted', owner, odd);
      expect(leases.map(({ path }: { path: string }) => path)).to.deep.equal(odd);
    });

    it('acquires 10,000 files at once, and refuses more', async function () {
      this.timeout(60_000);
      const [owner, base] = [newOwner(), newPath()];
      const many = Array.from({ length: 10_000 }, (_, i) => `${base}/${'deep/'.repeat(20)}${i}.ts`);
      const leases = await acquired(server, 'granted', owner, many);
      expect(leases).to.have.length(10_000);
      const contention = await acquired(server, 'contended', newOwner(), many);
      expect(contention.blockers).to.have.length(10_000);
      const answer = await acquire(server, owner, [...many, 'one more']);
      expectError(answer, { status: 400, code: 'invalid_request', field: 'paths' });
      const { body } = await say(server, owner, 'end');
      expect(body.released).to.have.length(10_000);
    });

    it('names the missing field of an acquire request that it refuses', async () => {
      const whole = { owner_id: 'o', repository: 'r', paths: ['p'] };
      const wrong: [string, object][] = [
        ['owner_id', { ...whole, owner_id: undefined }],
        ['owner_id', { ...whole, owner_id: ' ' }],
        ['owner_id', { ...whole, owner_id: 'x'.repeat(201) }],
        ['owner_id', { ...whole, owner_id: '..' }],
        ['repository', { ...whole, repository: '' }],
        ['repository', { ...whole, repository: 'x'.repeat(501) }],
        ['paths', { ...whole, paths: [] }],
        ['paths', { ...whole, paths: 'p' }],
        ['paths', { ...whole, paths: undefined }],
        ['owner', { ...whole, owner: 'me' }],
        ['owner.pid', { ...whole, owner: { pid: 'seven' } }],
      ];
      for (const [field, body] of wrong) {
        const answer = await post(server, `${filesPath}/acquire`, body);
        expectError(answer, { status: 400, code: 'invalid_request', field });
      }
    });

    it('refuses an empty list of paths to release, and releases nothing', async () => {
      const [owner, path] = [newOwner(), newPath()];
      await acquired(server, 'granted', owner, [path]);
      for (const place of [repository, '*']) {
        const body = { owner_id: owner, repository: place, paths: [], reason: 'ENDED' };
        const answer = await post(server, `${filesPath}/release`, body);
        expectError(answer, { status: 400, code: 'invalid_request', field: 'paths' });
      }
      expect((await release(server, owner)).body.released).to.have.length(1);
    });

    it('answers 404 for unknown owners on every route except acquire', async () => {
      const nobody = newOwner();
      const answers = [
        await beat(server, nobody),
        await release(server, nobody),
        await say(server, nobody, 'stop'),
        await say(server, nobody, 'activity'),
        await say(server, nobody, 'end'),
      ];
      for (const answer of answers) expectError(answer, { status: 404, code: 'owner_not_found' });
    });

    it('answers 409 for dead and ended owners until they acquire again', async () => {
      const [owner, path] = [newOwner(), newPath()];
      await acquired(server, 'granted', owner, [path]);
      await say(server, owner, 'end');
      for (const answer of [
        await beat(server, owner),
        await say(server, owner, 'stop'),
        await say(server, owner, 'activity'),
      ]) {
        expectError(answer, { status: 409, code: 'owner_not_alive' });
      }
      expect((await release(server, owner)).body).to.deep.equal({ released: [], not_released: [] });
      await acquired(server, 'granted', owner, [path]);
      expect((await beat(server, owner)).status).to.equal(200);
    });

    it('names the invalid field of a release that it refuses', async () => {
      const [owner, path] = [newOwner(), newPath()];
      await acquired(server, 'granted', owner, [path]);
      const wrong: [string, object][] = [
        ['reason', { reason: undefined }],
        ['reason', { reason: 'BORED' }],
        ['repository', { repository: undefined, paths: [path] }],
        ['paths[0]', { paths: ['../x'] }],
        ['fences', { fences: { [path]: -1 } }],
        ['fences', { fences: { [path]: 'abc' } }],
        ['fences', { fences: { other: 1 }, paths: [path] }],
      ];
      for (const [field, body] of wrong) {
        const answer = await release(server, owner, body);
        expect(answer.status, answer.text).to.equal(400);
        expect(answer.body.code).to.equal('invalid_request');
        expect(answer.body.field, answer.text).to.match(new RegExp(`^${field.replace(/[[\]]/g, '\\$&')}`));
      }
      expect(await leasesOf(server, owner)).to.have.length(1);
    });

    it('names the invalid parameter of a list of file leases that it refuses', async () => {
      for (const [field, query] of [
        ['limit', 'limit=0'],
        ['limit', 'limit=many'],
        ['cursor', 'cursor=xyz'],
      ] as const) {
        for (const list of ['leases', 'blockers']) {
          const answer = await get(server, `${filesPath}/${list}?${query}`);
          expectError(answer, { status: 400, code: 'invalid_request', field });
        }
      }
      const answer = await get(server, `${filesPath}/blockers?state=BORED`);
      expectError(answer, { status: 400, code: 'invalid_request', field: 'state' });
    });

    it('lists all file leases in pages, newest first', async () => {
      const owner = newOwner();
      const paths = Array.from({ length: 5 }, newPath);
      for (const path of paths) await acquired(server, 'granted', owner, [path]);
      const found: string[] = [];
      for (let cursor = ''; ; ) {
        const { body } = await get(server, `${filesPath}/leases?owner_id=${owner}&limit=2&cursor=${cursor}`);
        found.push(...body.leases.map(({ path }: { path: string }) => path));
        if (body.next_cursor === null) break;
        cursor = body.next_cursor;
      }
      expect(found).to.deep.equal(paths.toReversed());
    });
  });
});
