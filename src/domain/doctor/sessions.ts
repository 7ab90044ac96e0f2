import type { JsonObject } from '../jobs/job.ts';
import { span } from '../time.ts';
import type { DatabaseFacts, SessionsFacts, Thresholds } from './facts.ts';
import { type Finding, found, unread } from './finding.ts';
import { bytes, whole } from './units.ts';

/** Checks the connections, and transactions that have been open for too long. */
export function checkSessions(
  { sessions, settings }: DatabaseFacts,
  poolMax: number,
  limits: Thresholds,
): Finding[] {
  if (!sessions) return [unread('connections', 'the connections')];
  const { connections, own } = sessions;
  const max = Number(settings.max_connections ?? 0);
  const free = max - Number(settings.superuser_reserved_connections ?? 0);
  const facts = { connections, leasehold_connections: own, max_connections: max, pool_max: poolMax };
  // One more connection listens for other servers, and one or two cancel abandoned statements.
  const needed = poolMax + 3;
  const tight = needed > free;
  const level = tight ? 'PROBLEM' : connections > free * 0.9 ? 'WARN' : 'OK';
  const text = tight
    ? `max_connections leaves ${free}, and one server may need ${needed}`
    : `${connections} of ${free} connections are taken, ${own} by Leasehold; each server takes up to ${needed}`;
  const advice = 'raise max_connections, or lower LEASEHOLD_POOL_MAX';
  return [found('connections', level, text, advice, facts), ...checkOldestTransaction(sessions, limits)];
}

function checkOldestTransaction({ oldest, hidden }: SessionsFacts, limits: Thresholds): Finding[] {
  const [first] = oldest;
  const facts: JsonObject = {
    hidden,
    transactions: oldest.map(({ pid, application, user, state, openMs }) => ({
      pid,
      application,
      user,
      state,
      open_ms: Math.round(openMs),
    })),
  };
  const unseen =
    hidden === 0 ? '' : `; those of ${hidden} other sessions may not be seen (grant pg_monitor to see them)`;
  if (!first || first.openMs < limits.oldTransactionMs) {
    const open = first
      ? `the oldest transaction is open for ${span(first.openMs)}`
      : 'no transaction is open for long';
    return [found('oldest_transaction', 'OK', `${open}${unseen}`, null, facts)];
  }
  const level = first.openMs < limits.veryOldTransactionMs ? 'WARN' : 'PROBLEM';
  const who = `${first.application || 'a session'} of ${first.user}`;
  const text = `a transaction of ${who} (process ${first.pid}, ${first.state}) is open for ${span(first.openMs)}: no row that has died since can be cleared away${unseen}`;
  const advice = `end it: 'select pg_terminate_backend(${first.pid})'`;
  return [found('oldest_transaction', level, text, advice, facts)];
}

const keptMany = 1024 ** 3;

/** Checks replication slots and prepared transactions, which also keep dead tuples and old WAL. */
export function checkSlots({ slots, prepared }: DatabaseFacts, limits: Thresholds): Finding[] {
  if (!slots || !prepared) return [unread('replication_slots', 'slots and prepared transactions')];
  const idle = slots.filter(({ isActive }) => !isActive);
  return [
    ...idle.map(({ name, xminAge, keptBytes }) => {
      const kept = keptBytes === null ? '' : `, and keeps ${bytes(keptBytes)} of log`;
      const level = (keptBytes ?? 0) > keptMany ? 'PROBLEM' : 'WARN';
      const rows = xminAge === null ? '' : `, and dead rows of ${whole(xminAge)} transactions`;
      const advice = `let its reader connect again, or drop the slot where there is none any more`;
      return found(
        'replication_slots',
        level,
        `no client reads replication slot ${name}${kept}${rows}`,
        advice,
        {
          slot: name,
          xmin_age: xminAge,
          kept_bytes: keptBytes,
        },
      );
    }),
    ...(idle.length === 0
      ? [found('replication_slots', 'OK', `${slots.length} replication slots, all of them read`, null, {})]
      : []),
    ...prepared.map(({ gid, openMs }) =>
      found(
        'prepared_transactions',
        openMs > limits.veryOldTransactionMs ? 'PROBLEM' : 'WARN',
        `transaction ${gid} is prepared and neither committed nor rolled back for ${span(openMs)}; it keeps its locks and all dead rows`,
        "'commit prepared' or 'rollback prepared' it; Leasehold makes none",
        { gid, open_ms: Math.round(openMs) },
      ),
    ),
    ...(prepared.length === 0 ? [found('prepared_transactions', 'OK', 'no transaction is prepared')] : []),
  ];
}
