import { chmodSync, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { dataDir as templateArchive } from '@electric-sql/pglite-prepopulatedfs';

/**
 * Returns the PostgreSQL data directory inside `dir`, and creates it first if it is missing.
 *
 * A new one is unpacked from the archive of the matching PGlite package, which takes a fraction of a second
 * where `initdb` takes three. It is unpacked into a temporary directory and renamed when complete. A process
 * that is killed half way leaves only files that the next one removes, never half a database. The caller
 * holds the directory lock.
 */
export async function prepareDataDirectory(dir: string): Promise<string> {
  const place = join(dir, 'pg');
  const aside = join(dir, 'pg.tmp');
  rmSync(aside, { recursive: true, force: true });
  if (!existsSync(place)) {
    const archive = await templateArchive();
    mkdirSync(aside, { mode: 0o700 });
    unpack(gunzipSync(await archive.arrayBuffer()), aside);
    renameSync(aside, place);
  }
  return place;
}

const BLOCK_BYTES = 512;
const DIRECTORY = '5';

/** Unpacks a tar archive that contains only files and directories, as the template does. */
function unpack(archive: Buffer, into: string): void {
  const made = new Set<string>();
  const make = (path: string) => {
    if (!made.has(path)) mkdirSync(path, { recursive: true, mode: 0o700 });
    made.add(path);
  };
  for (let at = 0; at + BLOCK_BYTES <= archive.length && archive[at] !== 0; ) {
    const header = archive.subarray(at, at + BLOCK_BYTES);
    const name = join(text(header, 345, 155), text(header, 0, 100));
    const sizeBytes = Number.parseInt(text(header, 124, 12), 8) || 0;
    const content = at + BLOCK_BYTES;
    const path = join(into, name);
    if (text(header, 156, 1) === DIRECTORY) {
      make(path);
    } else {
      make(dirname(path));
      writeFileSync(path, archive.subarray(content, content + sizeBytes), { mode: 0o600 });
    }
    at = content + Math.ceil(sizeBytes / BLOCK_BYTES) * BLOCK_BYTES;
  }
  chmodSync(into, 0o700);
}

function text(header: Buffer, start: number, length: number): string {
  return (
    header
      .toString('latin1', start, start + length)
      .split('\0', 1)[0]
      ?.trim() ?? ''
  );
}
