import type { DatabaseFacts } from './facts.ts';
import { type Finding, type FindingLevel, found } from './finding.ts';
import { bytes } from './units.ts';

/** Bad values of settings, their level, and their consequence. */
const settingRules: readonly {
  name: string;
  bad: readonly string[];
  level: FindingLevel;
  means: string;
  advice: string;
}[] = [
  {
    name: 'fsync',
    bad: ['off'],
    level: 'PROBLEM',
    means: 'a crash of the machine may destroy the database',
    advice: 'set fsync = on',
  },
  {
    name: 'full_page_writes',
    bad: ['off'],
    level: 'PROBLEM',
    means: 'a crash in the middle of a write may leave torn pages behind',
    advice: 'set full_page_writes = on, unless the file system writes whole pages',
  },
  {
    name: 'synchronous_commit',
    bad: ['off'],
    level: 'PROBLEM',
    means: 'what was acknowledged may be lost with the database, a grant or a result among it',
    advice: 'set synchronous_commit = on',
  },
  {
    name: 'autovacuum',
    bad: ['off'],
    level: 'PROBLEM',
    means: 'dead rows are never cleared away, and everything becomes slower',
    advice: 'set autovacuum = on',
  },
  {
    name: 'track_counts',
    bad: ['off'],
    level: 'PROBLEM',
    means: 'autovacuum does not know what to do',
    advice: 'set track_counts = on',
  },
  {
    name: 'default_transaction_isolation',
    bad: ['repeatable read', 'serializable'],
    level: 'PROBLEM',
    means: 'a statement that waited for a row does not see its new version',
    advice: 'let no pooler or role setting override what Leasehold sets for its connections',
  },
];

/** Checks the settings of a PostgreSQL server. */
export function checkSettings(settings: DatabaseFacts['settings']): Finding[] {
  const judged = settingRules.map(({ name, bad, level, means, advice }) => {
    const value = settings[name] ?? 'unknown';
    const isBad = bad.includes(value);
    return found(
      name,
      isBad ? level : 'OK',
      isBad ? `${name} is ${value}: ${means}` : `${name} is ${value}`,
      advice,
      {
        [name]: value,
      },
    );
  });
  const buffers = Number(settings.shared_buffers_bytes ?? 0);
  const small = buffers < 128 * 1024 * 1024;
  const words = `shared_buffers is ${bytes(buffers)}`;
  return [
    ...judged,
    found('shared_buffers', small ? 'WARN' : 'OK', words, 'give it a quarter of the memory of the machine', {
      shared_buffers_bytes: buffers,
    }),
  ];
}
