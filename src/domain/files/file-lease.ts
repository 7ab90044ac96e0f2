import type { Holder } from '../access/holder.ts';
import type { ErrorCode } from '../errors.ts';
import type { JsonObject } from '../jobs/job.ts';

/** The states of a file's lease as the contract names them; the index is the number in the database. */
export const fileLeaseStates = ['HELD', 'RELEASED', 'RECLAIMED'] as const;
export type FileLeaseState = (typeof fileLeaseStates)[number];

/** Why an owner releases files, as the contract names it. */
export const releaseReasons = ['COMMITTED', 'FAILED', 'ENDED'] as const;
export type ReleaseReason = (typeof releaseReasons)[number];

/** A file's name: the repository, and the path as `file-paths.ts` normalizes it. */
export interface FileName {
  /** A digest of the two, by which rows are found and locked. */
  fileId: string;
  repository: string;
  path: string;
}

/** An owner's description of itself. */
export interface OwnerProfile {
  agent: string | null;
  host: string | null;
  pid: number | null;
  branch: string | null;
  /** The owner that this one is a sub-agent of. */
  parentOwnerId: string | null;
}

/** A file's lease as all APIs show it. Times are milliseconds since 1970 by the database's clock. */
export interface FileLease {
  repository: string;
  path: string;
  ownerId: string;
  owner: OwnerProfile;
  state: FileLeaseState;
  acquiredAtMs: number;
  lastHeartbeatAtMs: number;
  expiresAtMs: number;
  /** A bigint in the database, given as its decimal digits. */
  fence: string;
}

/** The owner that blocks a file. */
export interface Blocker {
  path: string;
  ownerId: string;
  owner: OwnerProfile;
  acquiredAtMs: number;
  lastHeartbeatAtMs: number;
  ageMs: number;
}

/** A denied request that has one retry. */
export interface Contention {
  contentionId: string;
  ownerId: string;
  repository: string;
  paths: string[];
  deniedAtMs: number;
  retryAtMs: number;
  retryAfterMs: number;
  blockers: Blocker[];
}

/** A request whose retry was blocked too. */
export interface BlockerReport {
  contentionId: string;
  ownerId: string;
  repository: string;
  paths: string[];
  deniedAtMs: number;
  retriedAtMs: number;
  haltedAtMs: number;
  /** Another lease holds the files than at the denial: of another owner, or a new lease of the same owner. */
  blockerChanged: boolean;
  blockers: Blocker[];
  /**
   * An instruction given while the owner was not alive. The owner's next request applies it. Null where there
   * is none.
   */
  keptInstruction: KeptInstruction | null;
}

/** What an operator may decide about a halt; the index is the number in the database. */
export const instructions = ['RETRY', 'ABANDON', 'FORCE_RELEASE'] as const;
export type Instruction = (typeof instructions)[number];

/** An instruction that waits for its owner's next request. */
export interface KeptInstruction {
  instruction: Instruction;
  instructedAtMs: number;
  instructedBy: string;
  reason: string | null;
}

export type Blocked =
  | { kind: 'contended'; contention: Contention }
  | { kind: 'halted'; report: BlockerReport };
export type FileOutcome = { kind: 'granted'; leases: FileLease[] } | Blocked;

/** The result of an instruction. */
export type InstructOutcome =
  | Extract<FileOutcome, { kind: 'granted' | 'halted' }>
  | { kind: 'abandoned'; contentionId: string }
  | { kind: 'kept'; contentionId: string; instruction: Instruction };

/** A file that an operator took from its owner. */
export interface LostFile {
  repository: string;
  path: string;
  fence: string;
  lostAtMs: number;
  reason: string;
}

/** An owner's heartbeat. */
export interface OwnerHeartbeat {
  ownerId: string;
  /** The caller's holder; the API layers leave it to the engine. */
  holder: Holder;
}

/** The answer to an owner's heartbeat. */
export type OwnerVerdict =
  | { kind: 'extended'; expiresAtMs: number; ttlRemainingMs: number; lostFiles: readonly LostFile[] }
  | { kind: 'lost'; code: ErrorCode; detail: string };

/** Why a file named in a release was not released. */
export interface NotReleased {
  path: string;
  code: 'not_held' | 'stale_fence';
  detail: string;
}

/**
 * What is released: all files (no repository), a whole repository, or some files. A file with a fence is
 * released only at that fence.
 */
export interface FileRelease {
  ownerId: string;
  repository: string | null;
  files: readonly { name: FileName; fence: string | null }[] | null;
  reason: ReleaseReason;
}

export interface FilesReleased {
  released: FileLease[];
  notReleased: NotReleased[];
}

/** The events of files and their owners, in the order of their numbers in the database. */
export const fileEventTypes = [
  'FILE_GRANTED',
  'FILE_CONTENDED',
  'FILE_RETRY_DUE',
  'FILE_HALTED',
  'FILE_INSTRUCTED',
  'FILE_ABANDONED',
  'FILE_LAPSED',
  'FILE_RELEASED',
  'FILE_RECLAIMED',
  'OWNER_STOPPED',
  'OWNER_RESUMED',
  'OWNER_IDLE',
  'OWNER_ENDED',
  'OWNER_DEAD',
] as const;
export type FileEventType = (typeof fileEventTypes)[number];

export const fileEventNumber = (type: FileEventType): number => fileEventTypes.indexOf(type);

/** One recorded change of a file or an owner. */
export interface FileEvent {
  eventId: string;
  tsMs: number;
  type: FileEventType;
  ownerId: string;
  repository: string | null;
  path: string | null;
  fence: string | null;
  contentionId: string | null;
  data: JsonObject;
}
