import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  type BlockedRequestSchema,
  type FileBlockerReportSchema,
  type FileBlockerSchema,
  type FileContentionSchema,
  FileContentionState,
  FileContentionStateSchema,
  type FileEventSchema,
  FileInstruction,
  FileInstructionSchema,
  type FileLeaseGrantSchema,
  type FileLeaseSchema,
  FileLeaseState,
  FileOwnerProfileSchema,
  type FileOwnerSchema,
  FileOwnerState,
  FileReleaseReason,
  FileReleaseReasonSchema,
  type KeptContentionSchema,
  type KeptFileInstructionSchema,
  type LostFileSchema,
} from '../../../gen/leasehold/v1/files_pb.js';
import { retryS } from '../../domain/files/contention-policy.ts';
import {
  type Blocked,
  type Blocker,
  type BlockerReport,
  type Contention,
  type FileEvent,
  type FileLease,
  type Instruction,
  instructions,
  type KeptInstruction,
  type LostFile,
  type OwnerProfile,
  type ReleaseReason,
  releaseReasons,
} from '../../domain/files/file-lease.ts';
import type { Owner } from '../../domain/files/file-owners.ts';
import { timestamp } from '../jobs/convert.ts';
import { noSuchValue } from '../wire/enums.ts';

/** Converts file leases between the domain and the proto messages. */

export function toReleaseReason(number: FileReleaseReason): ReleaseReason {
  const reason = releaseReasons.find((word) => FileReleaseReason[word] === number);
  if (!reason) throw noSuchValue(FileReleaseReasonSchema, number, 'reason');
  return reason;
}

export function toInstruction(number: FileInstruction): Instruction {
  const instruction = instructions.find((word) => FileInstruction[word] === number);
  if (!instruction) throw noSuchValue(FileInstructionSchema, number, 'instruction');
  return instruction;
}

export function toContentionState(number: FileContentionState): 'CONTENDED' | 'HALTED' | undefined {
  if (number === FileContentionState.UNSPECIFIED) return undefined;
  if (number === FileContentionState.CONTENDED) return 'CONTENDED';
  if (number === FileContentionState.HALTED) return 'HALTED';
  throw noSuchValue(FileContentionStateSchema, number, 'state');
}

const profileMessage = ({ agent, host, pid, branch, parentOwnerId }: OwnerProfile) =>
  create(FileOwnerProfileSchema, {
    agent: agent ?? undefined,
    host: host ?? undefined,
    pid: pid ?? undefined,
    branch: branch ?? undefined,
    parentOwnerId: parentOwnerId ?? undefined,
  });

export const fileLeaseMessage = (lease: FileLease): MessageInitShape<typeof FileLeaseSchema> => ({
  repository: lease.repository,
  path: lease.path,
  ownerId: lease.ownerId,
  leaseState: FileLeaseState[lease.state],
  acquiredAt: timestamp(lease.acquiredAtMs),
  lastHeartbeatAt: timestamp(lease.lastHeartbeatAtMs),
  expiresAt: timestamp(lease.expiresAtMs),
  fence: BigInt(lease.fence),
  owner: profileMessage(lease.owner),
});

export const grantMessage = (
  leases: readonly FileLease[],
): MessageInitShape<typeof FileLeaseGrantSchema> => ({ leases: leases.map(fileLeaseMessage) });

export const ownerMessage = (owner: Owner): MessageInitShape<typeof FileOwnerSchema> => ({
  ownerId: owner.ownerId,
  owner: profileMessage(owner.profile),
  state: owner.state === 'NEW' ? FileOwnerState.UNSPECIFIED : FileOwnerState[owner.state],
  lastHeartbeatAt: timestamp(owner.lastHeartbeatAtMs),
  lastActivityAt: timestamp(owner.lastActivityAtMs),
  expiresAt: timestamp(owner.expiresAtMs),
  stoppedAt: optional(owner.stoppedAtMs),
  idleAt: optional(owner.idleAtMs),
  endedAt: optional(owner.endedAtMs),
});

const optional = (ms: number | null) => (ms === null ? undefined : timestamp(ms));

const blockerMessage = (blocker: Blocker): MessageInitShape<typeof FileBlockerSchema> => ({
  path: blocker.path,
  ownerId: blocker.ownerId,
  owner: profileMessage(blocker.owner),
  acquiredAt: timestamp(blocker.acquiredAtMs),
  lastHeartbeatAt: timestamp(blocker.lastHeartbeatAtMs),
  ageMs: BigInt(blocker.ageMs),
});

export const contentionMessage = (contention: Contention): MessageInitShape<typeof FileContentionSchema> => ({
  contentionId: contention.contentionId,
  ownerId: contention.ownerId,
  repository: contention.repository,
  paths: contention.paths,
  deniedAt: timestamp(contention.deniedAtMs),
  retryAt: timestamp(contention.retryAtMs),
  retryAfterMs: BigInt(contention.retryAfterMs),
  blockers: contention.blockers.map(blockerMessage),
});

export const reportMessage = (report: BlockerReport): MessageInitShape<typeof FileBlockerReportSchema> => ({
  contentionId: report.contentionId,
  ownerId: report.ownerId,
  repository: report.repository,
  paths: report.paths,
  deniedAt: timestamp(report.deniedAtMs),
  retriedAt: timestamp(report.retriedAtMs),
  haltedAt: timestamp(report.haltedAtMs),
  retryS,
  blockerChanged: report.blockerChanged,
  blockers: report.blockers.map(blockerMessage),
  keptInstruction: report.keptInstruction === null ? undefined : keptMessage(report.keptInstruction),
});

const keptMessage = (kept: KeptInstruction): MessageInitShape<typeof KeptFileInstructionSchema> => ({
  instruction: FileInstruction[kept.instruction],
  instructedAt: timestamp(kept.instructedAtMs),
  instructedBy: kept.instructedBy,
  reason: kept.reason ?? undefined,
});

/** The contention for which an instruction is stored. */
export const keptContentionMessage = (
  contentionId: string,
  instruction: Instruction,
): MessageInitShape<typeof KeptContentionSchema> => ({
  contentionId,
  instruction: FileInstruction[instruction],
});

export const blockedMessage = (blocked: Blocked): MessageInitShape<typeof BlockedRequestSchema> => ({
  blocked:
    blocked.kind === 'contended'
      ? { case: 'contended', value: contentionMessage(blocked.contention) }
      : { case: 'halted', value: reportMessage(blocked.report) },
});

export const lostFileMessage = (lost: LostFile): MessageInitShape<typeof LostFileSchema> => ({
  repository: lost.repository,
  path: lost.path,
  fence: BigInt(lost.fence),
  lostAt: timestamp(lost.lostAtMs),
  reason: lost.reason,
});

export const fileEventMessage = (event: FileEvent): MessageInitShape<typeof FileEventSchema> => ({
  eventId: BigInt(event.eventId),
  ts: timestamp(event.tsMs),
  type: event.type,
  ownerId: event.ownerId,
  repository: event.repository ?? undefined,
  path: event.path ?? undefined,
  fence: event.fence === null ? undefined : BigInt(event.fence),
  contentionId: event.contentionId ?? undefined,
  data: event.data,
});
