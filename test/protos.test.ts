import { execFile } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';

const root = fileURLToPath(new URL('..', import.meta.url));
const buf = join(root, 'node_modules/.bin/buf');

/** Hands over a copy of the protos, with the code that is generated from them and all that generates it. */
async function inCopy<T>(use: (directory: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-protos-'));
  try {
    for (const path of ['proto', 'third_party', 'gen', 'buf.yaml', 'buf.gen.yaml', 'package.json'])
      cpSync(join(root, path), join(directory, path), { recursive: true });
    symlinkSync(join(root, 'node_modules'), join(directory, 'node_modules'));
    return await use(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Runs `buf breaking` over a copy of the protos that `change` has edited, and gives back what it prints. */
const breakingAfter = (file: string, change: (text: string) => string): Promise<string> =>
  inCopy((directory) => {
    const edited = join(directory, file);
    writeFileSync(edited, change(readFileSync(edited, 'utf8')));
    const args = ['breaking', 'proto', '--against', 'proto/baseline.binpb'];
    return new Promise((resolve, reject) => {
      execFile(buf, args, { cwd: directory }, (error, stdout) => {
        // Exit code 100 says that something breaks; any other failure is one of the program itself.
        if (error && error.code !== 100) reject(error);
        else resolve(stdout);
      });
    });
  });

/** Every file of generated code in a directory, with its text. */
const generatedIn = (directory: string): Record<string, string> =>
  Object.fromEntries(
    globSync('gen/**/*.{js,ts}', { cwd: directory })
      .sort()
      .map((path) => [path, readFileSync(join(directory, path), 'utf8')]),
  );

describe('the protos', () => {
  it('name their packages for Go and Java (C16)', () => {
    const files = globSync('proto/**/*.proto', { cwd: root });
    expect(files).to.not.be.empty;
    for (const file of files) {
      const text = readFileSync(join(root, file), 'utf8');
      expect(text, file).to.include('\noption go_package = "leasehold/v1;leaseholdv1";\n');
      expect(text, file).to.include('\noption java_package = "com.leasehold.v1";\n');
      expect(text, file).to.include('\noption java_multiple_files = true;\n');
    }
  });

  it('leave the files of other projects out of what clients generate (C17)', () => {
    expect(globSync('proto/{google,grpc}/**', { cwd: root })).to.be.empty;
    for (const file of globSync('proto/**/*.proto', { cwd: root })) {
      const imports = [...readFileSync(join(root, file), 'utf8').matchAll(/^import "(.*)";$/gm)].map(
        ([, path]) => path,
      );
      for (const path of imports) expect(path, file).to.match(/^(leasehold\/v1|google\/protobuf)\//);
    }
  });

  for (const folder of ['proto', 'third_party/proto']) {
    it(`keep all generated code when buf generates ${folder} alone`, async () => {
      await inCopy(async (directory) => {
        const path = `${join(root, 'node_modules/.bin')}${delimiter}${process.env.PATH}`;
        await promisify(execFile)(buf, ['generate', folder], {
          cwd: directory,
          env: { ...process.env, PATH: path },
        });
        expect(generatedIn(directory)).to.deep.equal(generatedIn(root));
      });
    });
  }

  it('have no code of removed files left by npm run generate', async () => {
    await inCopy(async (directory) => {
      writeFileSync(join(directory, 'gen/leasehold/v1/removed_pb.js'), '');
      await promisify(execFile)('npm', ['run', '--silent', 'generate'], { cwd: directory });
      expect(generatedIn(directory)).to.deep.equal(generatedIn(root));
    });
  });

  it('keep every field, name and RPC of the baseline', async () => {
    expect(await breakingAfter('proto/leasehold/v1/jobs.proto', (text) => text)).to.equal('');
  });

  it('are all in the baseline, so that what is new cannot be broken either (C17)', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'leasehold-protos-'));
    try {
      const output = join(directory, 'now.binpb');
      await promisify(execFile)(buf, ['build', 'proto', '--exclude-source-info', '--output', output], {
        cwd: root,
      });
      const isCurrent = readFileSync(output).equals(readFileSync(join(root, 'proto/baseline.binpb')));
      expect(isCurrent, 'npm run baseline writes it anew').to.equal(true);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });

  it('refuse a change of the API that the baseline does not know', async () => {
    const file = 'proto/leasehold/v1/leases.proto';
    expect(await breakingAfter(file, (text) => text.replace(/^ {2}rpc GetLease\(.*\n/m, ''))).to.include(
      'Previously present RPC "GetLease"',
    );
    expect(
      await breakingAfter(file, (text) => text.replace(/^ {2}optional int32 limit = 4;\n/m, '')),
    ).to.include('field "4" with name "limit"');
    expect(
      await breakingAfter(file, (text) => text.replace('string reason = 1;', 'string why = 1;')),
    ).to.include('from "reason" to "why"');
  });
});
