import type { JsonObject } from '../jobs/job.ts';
import type { DiagnosisFacts } from './facts.ts';
import { type Finding, type FindingLevel, finding } from './finding.ts';
import { bytes } from './units.ts';

/** The first version with all stream and consumer-group commands that the server uses. */
const versionMin = [6, 2] as const;

export function checkRedis(redis: DiagnosisFacts['redis']): Finding[] {
  const found = (
    code: string,
    level: FindingLevel,
    text: string,
    advice: string | null,
    facts: JsonObject = {},
  ) => finding('redis', code, level, text, advice, facts);
  if (redis === null)
    return [found('redis', 'OK', 'no Redis is used; the database carries the streams', null)];
  if ('failed' in redis) {
    const text = `${redis.isForeign ? 'Redis is not used' : 'Redis is away'}: ${redis.failed}; streams go on over the database alone`;
    const advice = redis.isForeign
      ? 'name a Redis, or a database of this one (redis://…/1), that no other Leasehold has'
      : 'see why it does not answer; messages are sent again when it is back';
    return [found('redis', 'PROBLEM', text, advice)];
  }
  const { version, usedBytes, maxBytes, policy, savesSnapshots, appendsLog, lastSaveFailed } = redis;
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const isOld = major < versionMin[0] || (major === versionMin[0] && minor < versionMin[1]);
  const evicts = policy.startsWith('allkeys');
  const share = maxBytes === 0 ? 0 : usedBytes / maxBytes;
  const keeps = [...(savesSnapshots ? ['snapshots'] : []), ...(appendsLog ? ['an append-only file'] : [])];
  return [
    found(
      'redis_version',
      isOld ? 'PROBLEM' : 'OK',
      `Redis ${version}`,
      `use Redis ${versionMin.join('.')} or later`,
      { version },
    ),
    found(
      'redis_maxmemory_policy',
      evicts ? 'PROBLEM' : 'OK',
      evicts
        ? `maxmemory-policy is ${policy}: a Redis that is full throws streams away`
        : `maxmemory-policy is ${policy}`,
      "set maxmemory-policy to noeviction ('config set maxmemory-policy noeviction', and in its configuration)",
      { maxmemory_policy: policy },
    ),
    found(
      'redis_memory',
      share > 0.9 ? 'WARN' : 'OK',
      maxBytes === 0
        ? `${bytes(usedBytes)} used, with no limit`
        : `${bytes(usedBytes)} used of ${bytes(maxBytes)}`,
      'give it more memory; where it is full, messages wait in the database',
      { used_bytes: usedBytes, max_bytes: maxBytes },
    ),
    found(
      'redis_persistence',
      lastSaveFailed ? 'WARN' : 'OK',
      lastSaveFailed
        ? 'the last attempt to write to its disk has failed'
        : keeps.length === 0
          ? 'it keeps nothing on the disk; what it loses is sent again'
          : `it keeps ${keeps.join(' and ')}`,
      'see its log and its disk',
      { snapshots: savesSnapshots, append_only: appendsLog, last_save_failed: lastSaveFailed },
    ),
  ];
}
