/** The guarantee: a file that changes is used once it can be used, and the old content counts until then. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createLog } from '../../../src/lib/log.ts';
import { ReloadedFile } from '../../../src/lib/net/reloaded-file.ts';
import { temporaryFolder } from '../../support/cleanup.ts';
import { failure } from '../../support/failure.ts';
import { eventually } from '../../support/server.ts';

describe('a file that is read again', () => {
  let path: string;
  let lines: string[];

  const parse = (text: string): number => {
    if (!/^\d+$/.test(text)) throw new Error('is no number');
    return Number(text);
  };
  const open = (reloadMs = 60_000) =>
    ReloadedFile.open({
      variable: 'LEASEHOLD_X',
      path,
      parse,
      reloadMs,
      log: createLog({ level: 'info', human: false, write: (line) => void lines.push(line) }),
    });

  beforeEach(async () => {
    path = join(await temporaryFolder('reloaded'), 'file');
    lines = [];
  });

  it('does not open what cannot be read or used, and names the setting', async () => {
    expect(String(await failure(open()))).to.include('LEASEHOLD_X: the file cannot be read');
    await writeFile(path, 'one');
    expect(String(await failure(open()))).to.include('LEASEHOLD_X: is no number');
    await writeFile(path, '1'.repeat(5 * 1024 * 1024));
    expect(String(await failure(open()))).to.include('LEASEHOLD_X: the file has more than');
  });

  it('uses a change, and keeps the old content while the new one cannot be used', async () => {
    await writeFile(path, '1');
    const file = await open(10);
    let changes = 0;
    file.onChange(() => changes++);
    file.start();
    try {
      await writeFile(path, 'two');
      await eventually('the file fails', async () => file.isFailing || undefined);
      await file.runOnce().catch(() => {});
      expect([file.value, changes]).to.deep.equal([1, 0]);
      const complaints = () => lines.filter((line) => line.includes('"level":"error"'));
      expect(complaints(), 'once for each fault').to.have.length(1);
      await rm(path);
      await eventually('the other fault', async () => complaints()[1]);
      expect([file.value, changes]).to.deep.equal([1, 0]);
      await writeFile(path, '3');
      await eventually('the new content', async () => file.value === 3 || undefined);
      expect([file.isFailing, changes]).to.deep.equal([false, 1]);
    } finally {
      await file.stop();
    }
  });
});
