import type { RedisClient } from './connection.ts';
import { ownerKey } from './keys.ts';

/** A FLUSHDB may come between setting the owner and reading it. */
const turnsMax = 3;

/**
 * Takes a Redis database for the messages of this database unless another has it. Returns its owner, or null
 * if Redis keeps losing it.
 */
export async function ownerOf(client: RedisClient, databaseName: string): Promise<string | null> {
  for (let turn = 0; turn < turnsMax; turn++) {
    const owner = await client.get(ownerKey);
    if (owner !== null) return owner;
    await client.set(ownerKey, databaseName, { condition: 'NX' });
  }
  return client.get(ownerKey);
}
