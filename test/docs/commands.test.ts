/** Readers can paste the commands of the README and of the guides, in bash and in zsh. */
import { basename } from 'node:path';
import { expect } from 'chai';
import { blocksIn, textOf, tours } from '../support/documents.ts';
import { onEveryEngine } from '../support/engines.ts';
import { paste, type Shell } from '../support/pasted.ts';
import { findProgram, noteNotRun } from '../support/programs.ts';
import { startTestServer } from '../support/server.ts';

/** Blocks marked `sh norun`, by their first line, and why no test runs them. */
const notRun: Readonly<Record<string, string>> = {
  'npm ci && npm start': 'starts a server, and the test has one',
  'npm ci && npm test': 'runs this test',
  'DATABASE_URL=postgres://user:secret@127.0.0.1:5432/leasehold npm start': 'starts a server',
  'npm run build': 'writes dist, which .ci/pack-check builds and tests',
  'pip install grpcio grpcio-tools googleapis-common-protos grpcio-status': 'needs a package registry',
  'go install google.golang.org/protobuf/cmd/protoc-gen-go@latest google.golang.org/grpc/cmd/protoc-gen-go-grpc@latest':
    'needs a package registry',
  'protoc -I proto --java_out=src --grpc-java_out=src proto/leasehold/v1/*.proto':
    'needs a plugin of gRPC for Java',
  'leasehold files instruct <contention_id> RETRY': 'needs a halt, which takes 180 seconds',
};

/** Interactive, with their own defaults. */
const shells: Shell[] = [{ program: 'bash', args: ['--norc', '--noprofile', '-i'] }];
const zsh = findProgram('zsh');
if (zsh === undefined) noteNotRun('zsh', 'the commands of the documents in zsh');
else shells.push({ program: zsh, args: ['-f', '-i', '+o', 'prompt_sp'] });

describe('command blocks of the README and the guides', () => {
  it('contain no comments, which an interactive zsh takes for commands', () => {
    for (const path of tours())
      for (const { info, code } of blocksIn(textOf(path)))
        if (info === 'sh') expect(code, path).not.to.match(/(^|\s)#/m);
  });

  it('are run by a test, or listed here with the reason why not', () => {
    const infos = tours().flatMap((path) => blocksIn(textOf(path)).map(({ info }) => info));
    const shells = infos.filter((info) => /^(sh|bash|zsh|shell|console)\b/.test(info));
    expect([...new Set(shells)]).to.have.members(['sh', 'sh norun']);
    expect(shells.filter((info) => info === 'sh')).to.have.length.above(30);
    const skipped = tours().flatMap((path) =>
      blocksIn(textOf(path)).flatMap(({ info, code }) => (info === 'sh norun' ? [code.split('\n')[0]] : [])),
    );
    expect([...new Set(skipped)]).to.have.members(Object.keys(notRun));
  });

  it('expect output in the README and in each guide', () => {
    for (const path of tours())
      expect(
        blocksIn(textOf(path)).flatMap(({ expects }) => expects),
        path,
      ).to.have.length.above(2);
  });
});

onEveryEngine((engine) => {
  if (engine.name !== 'embedded') return;

  /** As often as a reader may paste it: the README twice, because its keys and ids must not clash. */
  async function follow(path: string, shell: Shell): Promise<void> {
    await using server = await startTestServer(engine);
    for (let i = 0; i < (path === 'README.md' ? 2 : 1); i++) await paste(path, shell, server);
  }

  describe('readers of the documents', () => {
    for (const path of tours()) {
      it(`run the commands of ${path} in ${shells.map(({ program }) => basename(program)).join(' and ')}`, async function () {
        this.timeout(240_000);
        await Promise.all(shells.map((shell) => follow(path, shell)));
      });
    }
  });
});
