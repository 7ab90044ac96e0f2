import {
  BlockedRequestSchema,
  FileLeaseSchema,
  type FileLeasesService,
} from '../../../gen/leasehold/v1/files_pb.js';
import { fileReleaseOf, fileRequestOf } from '../../domain/requests/files.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Implementation } from '../implementation.ts';
import { timestamp } from '../jobs/convert.ts';
import { pageThatFits } from '../response-size.ts';
import {
  blockedMessage,
  contentionMessage,
  fileEventMessage,
  fileLeaseMessage,
  grantMessage,
  keptContentionMessage,
  lostFileMessage,
  ownerMessage,
  reportMessage,
  toContentionState,
  toInstruction,
  toReleaseReason,
} from './convert.ts';

/** FileLeasesService: proto in, one engine call, proto out. */
export function filesImplementation(engine: Engine): Implementation<typeof FileLeasesService> {
  const { files } = engine;
  const ownerIn = ({ ownerId }: { ownerId: string }) => parse.ownerWord({ owner_id: ownerId }).owner_id;

  return {
    async acquireFileLeases({ ownerId, callerId, repository, paths, owner }, caller) {
      const command = parse.acquireFiles({
        owner_id: ownerId,
        caller_id: callerId,
        repository,
        paths,
        owner: plain(owner),
      });
      const outcome = await files.acquire(fileRequestOf(command), caller);
      if (outcome.kind === 'granted')
        return { outcome: { case: 'granted', value: grantMessage(outcome.leases) } };
      if (outcome.kind === 'contended')
        return { outcome: { case: 'contended', value: contentionMessage(outcome.contention) } };
      return { outcome: { case: 'halted', value: reportMessage(outcome.report) } };
    },

    async heartbeatOwner(request, caller) {
      const { expiresAtMs, ttlRemainingMs, lostFiles } = await files.heartbeat(ownerIn(request), caller);
      return {
        expiresAt: timestamp(expiresAtMs),
        ttlRemainingMs: BigInt(ttlRemainingMs),
        drain: engine.draining,
        lostFiles: lostFiles.map(lostFileMessage),
      };
    },

    async recordActivity(request, caller) {
      return { owner: ownerMessage(await files.reportActivity(ownerIn(request), caller)) };
    },

    async releaseFileLeases({ ownerId, repository, paths, fences, reason }, caller) {
      const command = parse.releaseFiles({
        owner_id: ownerId,
        repository,
        // A message cannot tell an empty list from an absent one.
        paths: paths.length === 0 ? undefined : paths,
        fences: Object.fromEntries(Object.entries(fences).map(([path, fence]) => [path, String(fence)])),
        reason: toReleaseReason(reason),
      });
      const { released, notReleased } = await files.release(fileReleaseOf(command), caller);
      return { released: released.map(fileLeaseMessage), notReleased };
    },

    async stopOwner(request, caller) {
      return { owner: ownerMessage(await files.stopOwner(ownerIn(request), caller)) };
    },

    async endOwner(request, caller) {
      const { owner, released } = await files.endOwner(ownerIn(request), caller);
      return { owner: ownerMessage(owner), released: released.map(fileLeaseMessage) };
    },

    async listFileLeases({ repository, ownerId, limit, cursor }, caller) {
      const command = parse.listFileLeases({ repository, owner_id: ownerId, limit, cursor });
      const { messages, nextCursor } = pageThatFits(await files.list(command, caller), {
        schema: FileLeaseSchema,
        messageOf: fileLeaseMessage,
        cursorOf: ({ fence }) => fence,
      });
      return { leases: messages, nextCursor };
    },

    async listBlockers({ repository, ownerId, state, limit, cursor }, caller) {
      const command = parse.listBlockers({
        repository,
        owner_id: ownerId,
        state: toContentionState(state),
        limit,
        cursor,
      });
      const { messages, nextCursor } = pageThatFits(await files.blockers(command, caller), {
        schema: BlockedRequestSchema,
        messageOf: blockedMessage,
        cursorOf: (blocked) =>
          blocked.kind === 'contended' ? blocked.contention.contentionId : blocked.report.contentionId,
      });
      return { blockers: messages, nextCursor };
    },

    async instructBlocker({ contentionId, instruction, reason, requestedBy }, caller) {
      const command = parse.instructBlocker({
        instruction: toInstruction(instruction),
        reason,
        requested_by: requestedBy,
      });
      const outcome = await files.instruct(contentionId, command, caller);
      if (outcome.kind === 'granted')
        return { outcome: { case: 'granted', value: grantMessage(outcome.leases) } };
      if (outcome.kind === 'halted')
        return { outcome: { case: 'halted', value: reportMessage(outcome.report) } };
      if (outcome.kind === 'kept') {
        const value = keptContentionMessage(outcome.contentionId, outcome.instruction);
        return { outcome: { case: 'kept', value } };
      }
      return { outcome: { case: 'abandoned', value: { contentionId: outcome.contentionId } } };
    },

    async *watchFileLeases({ repository, ownerId, afterCursor }, caller) {
      const command = parse.watchFiles({ repository, owner_id: ownerId, after_cursor: afterCursor });
      for await (const { events, cursor } of files.watch(command, caller))
        yield { events: events.map(fileEventMessage), cursor };
    },
  };
}

/** The fields of the message, in the form that the command takes. */
const plain = (
  owner: { agent?: string; host?: string; pid?: number; branch?: string; parentOwnerId?: string } | undefined,
): object | undefined =>
  owner && {
    agent: owner.agent,
    host: owner.host,
    pid: owner.pid,
    branch: owner.branch,
    parent_owner_id: owner.parentOwnerId,
  };
