import { span } from '../time.ts';
import { checkAccess, nodeFinding } from './access.ts';
import { checkDatabase } from './database.ts';
import { type DiagnosisFacts, type Thresholds, thresholds } from './facts.ts';
import { type Finding, type FindingLevel, finding, worstOf } from './finding.ts';
import { checkQueue } from './queue.ts';
import { checkRedis } from './redis.ts';

/**
 * Findings about a server, its database, its queue and its Redis, derived from facts. Everything here is
 * pure. Sentences are for people and may change; areas and codes are for programs and are stable.
 */
export interface Diagnosis {
  nowMs: number;
  version: string;
  /** The worst of all findings. */
  level: FindingLevel;
  findings: Finding[];
}

export function diagnose(facts: DiagnosisFacts, limits: Thresholds = thresholds): Diagnosis {
  const { nowMs, version, upMs, node, access, database } = facts;
  const findings = [
    finding('server', 'server_version', 'OK', `Leasehold ${version}, up for ${span(upMs)}`, null, {
      version,
      up_ms: Math.round(upMs),
    }),
    nodeFinding(node),
    ...('failed' in database
      ? checkAccess({ ...access, usesKeys: false }, [], nowMs)
      : checkAccess(access, database.keys, nowMs)),
    ...checkDatabase(facts, limits),
    ...('failed' in database ? [] : checkQueue(database.queue, limits)),
    ...checkRedis(facts.redis),
  ];
  return { nowMs, version, level: worstOf(findings), findings };
}
