import type { ErrorCode } from '../errors.ts';
import type { JsonObject } from '../jobs/job.ts';

/** The states of a file's lease in the contract's words; the index is the number in the database. */
export const fileLeaseStates = ['HELD', 'RELEASED', 'RECLAIMED'] as const;
export type FileLeaseState = (typeof fileLeaseStates)[number];

/** Why an owner gives files back, in the contract's words. */
export const releaseReasons = ['COMMITTED', 'FAILED', 'ENDED'] as const;
export type ReleaseReason = (typeof releaseReasons)[number];

/** A file by its name: the repository, and the path that `file-paths.ts` made of what was said. */
export interface FileName {
  /** A digest of the two, which is what rows are found and locked by. */
  fileId: string;
  repository: string;
  path: string;
}

/** Who an owner is, in its own words. */
export interface OwnerProfile {
  agent: string | null;
  host: string | null;
  pid: number | null;
  branch: string | null;
  /** The owner that this one is a sub-agent of. */
  parentOwnerId: string | null;
}

/** A file's lease as everybody sees it. Times are milliseconds since 1970 by the database's clock. */
export interface FileLease {
  repository: string;
  path: string;
  ownerId: string;
  owner: OwnerProfile;
  state: FileLeaseState;
  acquiredAtMs: number;
  lastHeartbeatAtMs: number;
  expiresAtMs: number;
  /** A bigint in the database, told as its decimal digits. */
  fence: string;
}

/** Who stands in the way of a file. */
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
  /** The files are held by another lease than when it was denied: of another owner, or of the same owner taken anew. */
  blockerChanged: boolean;
  blockers: Blocker[];
  /** Decided while the owner was not alive, and applied at its next request; null where nothing is decided. */
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

/** What came of an instruction. */
export type InstructOutcome =
  | Extract<FileOutcome, { kind: 'granted' | 'halted' }>
  | { kind: 'abandoned'; contentionId: string }
  | { kind: 'kept'; contentionId: string; instruction: Instruction };

/** A file that was taken from an owner by an operator. */
export interface LostFile {
  repository: string;
  path: string;
  fence: string;
  lostAtMs: number;
  reason: string;
}

/** What a sign of life of an owner came to. */
export type OwnerVerdict =
  | { kind: 'extended'; expiresAtMs: number; ttlRemainingMs: number; lostFiles: readonly LostFile[] }
  | { kind: 'lost'; code: ErrorCode; detail: string };

/** Why a file that was named was not given back. */
export interface NotReleased {
  path: string;
  code: 'not_held' | 'stale_fence';
  detail: string;
}

/** What is given back: everything (no repository), a whole repository, or some files, each only with its fence where one is given. */
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

/** One thing that has happened to a file or an owner. */
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
