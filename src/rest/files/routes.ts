/** The file contract, below `/api/files`: its paths, field names and statuses. */

import { limits } from '../../domain/limits.ts';
import { fileReleaseOf, fileRequestOf, ListBlockers, ListFileLeases } from '../../domain/requests/files.ts';
import { parse } from '../../domain/requests/parsers.ts';
import { iso } from '../../domain/time.ts';
import type { Engine } from '../../engine/engine.ts';
import { fromQuery } from '../http/query.ts';
import type { RestRequest, Route } from '../http/router.ts';
import { fileAbout } from './docs.ts';
import { acquired, blockedRow, fileLease, fileOwner, instructed, lostFile } from './schemas.ts';

const base = '/api/files';

export const fileRoutes = (engine: Engine): Route[] => [
  ...gateRoutes(engine),
  ...ownerRoutes(engine),
  ...operatorRoutes(engine),
];

const gateRoutes = ({ files }: Engine): Route[] => [
  {
    method: 'POST',
    path: `${base}/acquire`,
    about: fileAbout.acquireFiles,
    bodyBytesMax: limits.frameBytes,
    async handle({ body, caller }) {
      const outcome = await files.acquire(fileRequestOf(parse.acquireFiles(body)), caller);
      return { status: 200, body: acquired(outcome) };
    },
  },
  {
    method: 'POST',
    path: `${base}/release`,
    about: fileAbout.releaseFiles,
    bodyBytesMax: limits.frameBytes,
    async handle({ body, caller }) {
      const release = fileReleaseOf(parse.releaseFiles(body));
      const { released, notReleased } = await files.release(release, caller);
      return { status: 200, body: { released: released.map(fileLease), not_released: notReleased } };
    },
  },
];

const ownerRoutes = (engine: Engine): Route[] => [
  {
    method: 'POST',
    path: `${base}/heartbeat`,
    about: fileAbout.heartbeatOwner,
    async handle({ body, caller }) {
      const { owner_id } = parse.ownerWord(body);
      const { expiresAtMs, ttlRemainingMs, lostFiles } = await engine.files.heartbeat(owner_id, caller);
      return {
        status: 200,
        body: {
          ok: true,
          owner_id,
          expires_at: iso(expiresAtMs),
          ttl_remaining_ms: ttlRemainingMs,
          drain: engine.draining,
          lost_files: lostFiles.map(lostFile),
        },
      };
    },
  },
  {
    method: 'POST',
    path: `${base}/owners/{owner_id}/activity`,
    about: fileAbout.recordActivity,
    async handle({ path, caller }) {
      return {
        status: 200,
        body: { owner: fileOwner(await engine.files.reportActivity(ownerIn(path), caller)) },
      };
    },
  },
  {
    method: 'POST',
    path: `${base}/owners/{owner_id}/stop`,
    about: fileAbout.stopOwner,
    async handle({ path, caller }) {
      return { status: 200, body: { owner: fileOwner(await engine.files.stopOwner(ownerIn(path), caller)) } };
    },
  },
  {
    method: 'POST',
    path: `${base}/owners/{owner_id}/end`,
    about: fileAbout.endOwner,
    async handle({ path, caller }) {
      const { owner, released } = await engine.files.endOwner(ownerIn(path), caller);
      return { status: 200, body: { owner: fileOwner(owner), released: released.map(fileLease) } };
    },
  },
];

const operatorRoutes = ({ files }: Engine): Route[] => [
  {
    method: 'GET',
    path: `${base}/leases`,
    about: fileAbout.listFileLeases,
    async handle({ query, caller }) {
      const command = fromQuery(ListFileLeases, parse.listFileLeases, query);
      const { items, nextCursor } = await files.list(command, caller);
      return { status: 200, body: { leases: items.map(fileLease), next_cursor: nextCursor } };
    },
  },
  {
    method: 'GET',
    path: `${base}/blockers`,
    about: fileAbout.listBlockers,
    async handle({ query, caller }) {
      const command = fromQuery(ListBlockers, parse.listBlockers, query);
      const { items, nextCursor } = await files.blockers(command, caller);
      return { status: 200, body: { blockers: items.map(blockedRow), next_cursor: nextCursor } };
    },
  },
  {
    method: 'POST',
    path: `${base}/blockers/{contention_id}/instruct`,
    about: fileAbout.instructBlocker,
    async handle({ path, body, caller }) {
      const command = parse.instructBlocker(body);
      const outcome = await files.instruct(path.contention_id ?? '', command, caller);
      return { status: 200, body: instructed(outcome) };
    },
  },
];

const ownerIn = (path: RestRequest['path']): string => parse.ownerWord({ owner_id: path.owner_id }).owner_id;
