/** Keys for tests that call a server with authentication. */
import { type KeyLimits, serverLimits } from '../../src/domain/access/key-limits.ts';
import type { Role } from '../../src/domain/access/roles.ts';
import { everything, nothing, type Scopes } from '../../src/domain/access/scopes.ts';
import { KeyService } from '../../src/engine/access/key-service.ts';
import type { Database } from '../../src/store/database.ts';
import type { TestEngine, TestStore } from './engines.ts';
import { caller } from './jobs.ts';
import { startTestServer, type TestServer, type TestServerOptions } from './server.ts';

export interface KeyWish {
  name: string;
  roles: readonly Role[];
  scopes?: Partial<Scopes>;
  workerIds?: readonly string[];
  expiresAtMs?: number | null;
  seesPayloads?: boolean;
  limits?: Partial<KeyLimits>;
}

export interface TestKey {
  keyId: string;
  text: string;
  headers: { authorization: string };
}

/** Creates a key in the database itself. Where no scopes are wished for it reaches everything. */
export async function createKey(database: Database, wish: KeyWish): Promise<TestKey> {
  const { key, text } = await new KeyService(database).createFrom(
    {
      name: wish.name,
      roles: wish.roles,
      scopes: wish.scopes ? { ...nothing, ...wish.scopes } : everything,
      workerIds: wish.workerIds ?? ['*'],
      seesPayloads: wish.seesPayloads ?? false,
      limits: { ...serverLimits, ...wish.limits },
      note: null,
      expiresAtMs: wish.expiresAtMs ?? null,
    },
    caller,
  );
  return { keyId: key.keyId, text, headers: { authorization: `Bearer ${text}` } };
}

export interface KeyedServer extends TestServer {
  /** A key of an administrator that reaches everything. */
  admin: TestKey;
}

/** A server that asks for keys. Its store has the key of an administrator before it starts. */
export async function startKeyedServer(
  engine: TestEngine,
  options: TestServerOptions = {},
): Promise<KeyedServer> {
  const { openDatabase } = await import('../../src/store/open.ts');
  const shared: TestStore = options.shared ?? (await engine.create());
  const database = await openDatabase(shared.options);
  let admin: TestKey;
  try {
    admin = await createKey(database, { name: 'first', roles: ['admin'] });
  } finally {
    await database.close();
  }
  const server = await startTestServer(engine, {
    ...options,
    shared,
    settings: { auth: ['keys'], ...options.settings },
  });
  const stop = async () => {
    await server.stop();
    if (!options.shared) await shared.remove();
  };
  return { ...server, admin, stop, [Symbol.asyncDispose]: stop };
}
