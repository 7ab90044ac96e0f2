import { sql as raw } from 'kysely';
import { contentionStateNumber } from '../../../domain/files/contention-policy.ts';
import type { FileLease } from '../../../domain/files/file-lease.ts';
import type { EntitySql } from '../../connection/sql.ts';
import { select } from '../../schema/tables.ts';
import { type ContendedFile, type ContentionRecord, toContendedFile } from './contentions.ts';
import { type FileLeaseRecord, held, toFileLease } from './rows.ts';

const profileSelection = <Owner extends string>(owner: Owner) =>
  [
    `${owner}.agent`,
    `${owner}.host`,
    `${owner}.pid`,
    `${owner}.branch`,
    `${owner}.parent_owner_id`,
    `${owner}.last_heartbeat_at`,
  ] as const;

export interface FileLeaseFilter {
  repository: string | null;
  ownerId: string | null;
  /** Only leases with a lower fence. */
  cursor: string | null;
  limit: number;
}

/** Held leases, newest first. The filter chooses the index, which has this order. */
export async function listFileLeases(
  sql: EntitySql,
  { repository, ownerId, cursor, limit }: FileLeaseFilter,
  signal?: AbortSignal,
): Promise<FileLease[]> {
  const rows = await select(
    sql,
    (tables) =>
      tables
        .selectFrom('file_leases as file')
        .innerJoin('file_owners as owner', 'owner.owner_id', 'file.owner_id')
        .select([
          'file.file_id',
          'file.repository',
          'file.path',
          'file.state as lease_state',
          'file.owner_id',
          'file.acquired_at',
          'file.fence',
          'owner.expires_at',
        ])
        .select(profileSelection('owner'))
        .where('file.state', '=', held)
        .$if(ownerId !== null, (query) => query.where('file.owner_id', '=', ownerId))
        .$if(repository !== null, (query) => query.where('file.repository', '=', repository as string))
        .$if(cursor !== null, (query) => query.where('file.fence', '<', cursor))
        .orderBy('file.fence', 'desc')
        .limit(limit)
        .$castTo<FileLeaseRecord>(),
    signal,
  );
  return rows.map(toFileLease);
}

export interface ContentionFilter {
  repository: string | null;
  ownerId: string | null;
  state: 'CONTENDED' | 'HALTED' | null;
  /** Only contentions older than this one. */
  cursor: string | null;
  limit: number;
}

/** The condition of the index of open contentions. */
const firstClosed = contentionStateNumber('GRANTED');

/** The files of a page of open contentions, newest first. */
export async function listContentions(
  sql: EntitySql,
  { repository, ownerId, state, cursor, limit }: ContentionFilter,
  signal?: AbortSignal,
): Promise<ContendedFile[]> {
  const wanted = state === null ? null : contentionStateNumber(state);
  const rows = await select(
    sql,
    (tables) =>
      tables
        .with(
          (part) => part('page').materialized(),
          (part) =>
            part
              .selectFrom('file_contentions')
              .select('contention_id')
              .distinct()
              .where('state', '<', firstClosed)
              .$if(repository !== null, (query) => query.where('repository', '=', repository as string))
              .$if(ownerId !== null, (query) => query.where('owner_id', '=', ownerId as string))
              .$if(wanted !== null, (query) => query.where('state', '=', wanted as number))
              .$if(cursor !== null, (query) => query.where('contention_id', '<', cursor as string))
              .orderBy('contention_id', 'desc')
              .limit(limit),
        )
        .selectFrom('page')
        .innerJoin('file_contentions as contention', 'contention.contention_id', 'page.contention_id')
        .innerJoin('file_owners as blocker', (join) =>
          join.on(({ eb, fn, ref }) =>
            eb(
              'blocker.owner_id',
              '=',
              fn.coalesce(ref('contention.blocker_now_id'), ref('contention.blocker_id')),
            ),
          ),
        )
        .selectAll('contention')
        .select(({ fn, ref }) => [
          raw<boolean>`coalesce(contention.check_at > contention.retry_at, false)`.as('is_announced'),
          fn.coalesce(ref('contention.blocker_now_id'), ref('contention.blocker_id')).as('last_id'),
          fn
            .coalesce(ref('contention.blocker_now_acquired_at'), ref('contention.blocker_acquired_at'))
            .as('last_acquired_at'),
        ])
        .select(profileSelection('blocker'))
        .where('contention.state', '<', firstClosed)
        .$if(wanted !== null, (query) => query.where('contention.state', '=', wanted as number))
        .orderBy('contention.contention_id', 'desc')
        .orderBy('contention.state', 'desc')
        .orderBy('contention.path')
        .$castTo<ContentionRecord>(),
    signal,
  );
  return rows.map(toContendedFile);
}
