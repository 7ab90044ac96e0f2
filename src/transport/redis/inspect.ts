import type { RedisFacts } from '../../domain/doctor/facts.ts';
import type { RedisClient } from './connection.ts';

/** The facts that Redis reports about itself. */
export async function inspectRedis(client: RedisClient): Promise<RedisFacts> {
  const told = new Map(
    (await client.info())
      .split('\r\n')
      .filter((line) => line.includes(':'))
      .map((line): [string, string] => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]),
  );
  const number = (name: string) => Number(told.get(name) ?? 0);
  return {
    version: told.get('redis_version') ?? 'unknown',
    usedBytes: number('used_memory'),
    maxBytes: number('maxmemory'),
    policy: told.get('maxmemory_policy') ?? 'unknown',
    savesSnapshots: await savesSnapshots(client),
    appendsLog: told.get('aof_enabled') === '1',
    lastSaveFailed:
      told.get('rdb_last_bgsave_status') === 'err' ||
      (told.get('aof_enabled') === '1' && told.get('aof_last_write_status') === 'err'),
  };
}

/** Hosted servers may forbid reading their configuration; snapshots then count as off. */
async function savesSnapshots(client: RedisClient): Promise<boolean> {
  const { save } = await client.configGet('save').catch((): Record<string, string> => ({}));
  return save !== undefined && save !== '';
}
