/** The file contract, below `/api/files`: its paths, its words, its statuses. */
import { fileReleaseOf, fileRequestOf } from '../domain/file-commands.ts';
import type { FileOutcome } from '../domain/file-lease.ts';
import { limits } from '../domain/limits.ts';
import { parse } from '../domain/parsers.ts';
import { iso } from '../domain/times.ts';
import type { Engine } from '../engine/engine.ts';
import { blockedRow, contention, fileLease, fileOwner, lostFile, report } from './file-words.ts';
import { wholeIn } from './queue.ts';
import type { RestRequest, Route } from './router.ts';

const base = '/api/files';

export const fileRoutes = (engine: Engine): Route[] => [
  ...gateRoutes(engine),
  ...ownerRoutes(engine),
  ...operatorRoutes(engine),
];

const gateRoutes = ({ fileGate, fileOwners }: Engine): Route[] => [
  {
    method: 'POST',
    path: `${base}/acquire`,
    bodyBytesMax: limits.frameBytes,
    async handle({ body, caller }) {
      const outcome = await fileGate.acquire(fileRequestOf(parse.acquireFiles(body)), caller);
      return { status: 200, body: acquired(outcome) };
    },
  },
  {
    method: 'POST',
    path: `${base}/release`,
    bodyBytesMax: limits.frameBytes,
    async handle({ body, caller }) {
      const release = fileReleaseOf(parse.releaseFiles(body));
      const { released, notReleased } = await fileOwners.release(release, caller);
      return { status: 200, body: { released: released.map(fileLease), not_released: notReleased } };
    },
  },
];

const ownerRoutes = ({ fileOwners, ownerHeartbeats, heartbeats }: Engine): Route[] => [
  {
    method: 'POST',
    path: `${base}/heartbeat`,
    async handle({ body, caller }) {
      const { owner_id } = parse.ownerWord(body);
      const { expiresAtMs, ttlRemainingMs, lostFiles } = await ownerHeartbeats.beat(owner_id, caller);
      return {
        status: 200,
        body: {
          ok: true,
          owner_id,
          expires_at: iso(expiresAtMs),
          ttl_remaining_ms: ttlRemainingMs,
          drain: heartbeats.draining,
          lost_files: lostFiles.map(lostFile),
        },
      };
    },
  },
  {
    method: 'POST',
    path: `${base}/owners/{owner_id}/activity`,
    async handle({ path, caller }) {
      return { status: 200, body: { owner: fileOwner(await fileOwners.activity(ownerIn(path), caller)) } };
    },
  },
  {
    method: 'POST',
    path: `${base}/owners/{owner_id}/stop`,
    async handle({ path, caller }) {
      return { status: 200, body: { owner: fileOwner(await fileOwners.stop(ownerIn(path), caller)) } };
    },
  },
  {
    method: 'POST',
    path: `${base}/owners/{owner_id}/end`,
    async handle({ path, caller }) {
      const { owner, released } = await fileOwners.end(ownerIn(path), caller);
      return { status: 200, body: { owner: fileOwner(owner), released: released.map(fileLease) } };
    },
  },
];

const operatorRoutes = ({ fileReader, fileInstructor }: Engine): Route[] => [
  {
    method: 'GET',
    path: `${base}/leases`,
    async handle({ query, caller }) {
      const { items, nextCursor } = await fileReader.leases(parse.listFileLeases(pageOf(query)), caller);
      return { status: 200, body: { leases: items.map(fileLease), next_cursor: nextCursor } };
    },
  },
  {
    method: 'GET',
    path: `${base}/blockers`,
    async handle({ query, caller }) {
      const command = parse.listBlockers({ ...pageOf(query), state: query.get('state') || undefined });
      const { items, nextCursor } = await fileReader.blockers(command, caller);
      return { status: 200, body: { blockers: items.map(blockedRow), next_cursor: nextCursor } };
    },
  },
  {
    method: 'POST',
    path: `${base}/blockers/{contention_id}/instruct`,
    async handle({ path, body, caller }) {
      const command = parse.instructBlocker(body);
      const outcome = await fileInstructor.instruct(path.contention_id ?? '', command, caller);
      if (outcome.kind !== 'abandoned') return { status: 200, body: acquired(outcome) };
      return { status: 200, body: { outcome: 'abandoned', contention_id: outcome.contentionId } };
    },
  },
];

const ownerIn = (path: RestRequest['path']): string => parse.ownerWord({ owner_id: path.owner_id }).owner_id;

const pageOf = (query: URLSearchParams) => ({
  repository: query.get('repository') || undefined,
  owner_id: query.get('owner_id') || undefined,
  limit: wholeIn(query, 'limit'),
  cursor: query.get('cursor'),
});

function acquired(outcome: FileOutcome) {
  if (outcome.kind === 'granted') return { outcome: 'granted', leases: outcome.leases.map(fileLease) };
  if (outcome.kind === 'contended')
    return { outcome: 'contended', contention: contention(outcome.contention) };
  return { outcome: 'halted', blocker_report: report(outcome.report) };
}
