import type { RedisClient } from './connection.ts';
import { ownerKey } from './keys.ts';

/** A FLUSHDB may come between taking it and looking whose it is. */
const turnsMax = 3;

/** Takes a Redis database for this one's messages unless another has it. Answers with its owner, or null where it keeps losing it. */
export async function ownerOf(client: RedisClient, databaseName: string): Promise<string | null> {
  for (let turn = 0; turn < turnsMax; turn++) {
    const owner = await client.get(ownerKey);
    if (owner !== null) return owner;
    await client.set(ownerKey, databaseName, { condition: 'NX' });
  }
  return client.get(ownerKey);
}
