import type { RedisFacts } from '../../domain/doctor/facts.ts';
import type { RedisClient } from './connection.ts';

/** The facts that Redis reports about itself. */
export async function inspectRedis(client: RedisClient): Promise<RedisFacts> {
  const fields = new Map(
    (await client.info())
      .split('\r\n')
      .filter((line) => line.includes(':'))
      .map((line): [string, string] => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]),
  );
  const number = (name: string) => Number(fields.get(name) ?? 0);
  return {
    version: fields.get('redis_version') ?? 'unknown',
    usedBytes: number('used_memory'),
    maxBytes: number('maxmemory'),
    policy: fields.get('maxmemory_policy') ?? 'unknown',
    savesSnapshots: await savesSnapshots(client),
    appendsLog: fields.get('aof_enabled') === '1',
    lastSaveFailed:
      fields.get('rdb_last_bgsave_status') === 'err' ||
      (fields.get('aof_enabled') === '1' && fields.get('aof_last_write_status') === 'err'),
  };
}

/** Hosted servers may forbid reading their configuration; snapshots then count as off. */
async function savesSnapshots(client: RedisClient): Promise<boolean> {
  const { save } = await client.configGet('save').catch((): Record<string, string> => ({}));
  return save !== undefined && save !== '';
}
