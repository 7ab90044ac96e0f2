/** Keys in the database itself, for `--local`. Loaded only then, because it loads the database. */
import { readConfig } from '../../config.ts';
import { localPrincipal } from '../../domain/access/principal.ts';
import { DomainError } from '../../domain/errors.ts';
import { parse } from '../../domain/requests/parsers.ts';
import { KeyService } from '../../engine/access/key-service.ts';
import { createLog, inOneLine } from '../../lib/log.ts';
import { keyBody } from '../../rest/access/schemas.ts';
import { migrate } from '../../store/migrate.ts';
import { openConfigured } from '../../store/open.ts';
import type { KeyBody, KeyStore } from './key-store.ts';
import { userName } from './operator-client.ts';
import { printToStderr } from './stderr.ts';

export async function localKeys(work: (keys: KeyStore) => Promise<number>): Promise<number> {
  const config = readConfig({}, process.env);
  const log = createLog({ level: config.log, human: process.stderr.isTTY === true });
  const name = userName() ?? 'local';
  const caller = { peer: 'local', principal: { ...localPrincipal, name } };
  try {
    const database = await openConfigured(config, log);
    try {
      await migrate(database);
      const keys = new KeyService(database);
      return await work({
        async create(command) {
          const { key, text } = await keys.create(parse.createKey(command), caller);
          return { key: keyBody(key) as KeyBody, text };
        },
        list: async () => (await keys.list(caller)).map((key) => keyBody(key) as KeyBody),
        get: async (keyId) => keyBody(await keys.get(keyId, caller)) as KeyBody,
        async rotate(keyId, command) {
          const { key, text } = await keys.rotate(keyId, parse.rotateKey(command), caller);
          return { key: keyBody(key) as KeyBody, text };
        },
        revoke: async (keyId) => keyBody(await keys.revoke(keyId, caller)) as KeyBody,
        whoAmI: () => Promise.reject(new Error('check asks a server; leave out --local')),
      });
    } finally {
      await database.close();
    }
  } catch (error) {
    printToStderr(error instanceof DomainError ? `${error.detail} (${error.code})` : inOneLine(error));
    return 1;
  }
}
