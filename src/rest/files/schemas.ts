import Type, { type Static } from 'typebox';
import { retryS } from '../../domain/files/contention-policy.ts';
import {
  type Blocked,
  type Blocker,
  type BlockerReport,
  type Contention,
  type FileLease,
  type FileOutcome,
  fileLeaseStates,
  type InstructOutcome,
  instructions,
  type KeptInstruction,
  type LostFile,
  type OwnerProfile,
} from '../../domain/files/file-lease.ts';
import { type Owner, ownerStates } from '../../domain/files/file-owners.ts';
import { iso } from '../../domain/time.ts';
import {
  always,
  count,
  entity,
  flag,
  list,
  oneOf,
  orNull,
  time,
  uuid,
  whole,
  word,
} from '../openapi/schema-types.ts';

/** File leases with the contract's field names. */

const Profile = entity('OwnerProfile', 'Who an owner is, in its own words.', {
  agent: orNull(word('What kind of agent it is.')),
  host: orNull(word('The machine it runs on.')),
  pid: orNull(whole('Its process there.')),
  branch: orNull(word('What it works on.')),
  parent_owner_id: orNull(word('The owner that it is a sub-agent of.')),
});

const profile = ({ parentOwnerId, ...rest }: OwnerProfile): Static<typeof Profile> => ({
  ...rest,
  parent_owner_id: parentOwnerId,
});

const file = {
  repository: word('The repository.'),
  path: word("The file, relative to the repository's root."),
};
const fence = count('A number that only rises, for systems that refuse a writer who comes too late.');
const ownerId = word('The owner.');

export const FileLeaseRecord = entity('FileLease', 'The lease of a file.', {
  ...file,
  owner_id: ownerId,
  lease_state: oneOf(fileLeaseStates, 'Whether it holds.'),
  acquired_at: time('When its owner got it.'),
  last_heartbeat_at: time('The last heartbeat of its owner.'),
  expires_at: time('When it expires without another heartbeat.'),
  fence,
  owner: Profile,
});

export const fileLease = (lease: FileLease): Static<typeof FileLeaseRecord> => ({
  repository: lease.repository,
  path: lease.path,
  owner_id: lease.ownerId,
  lease_state: lease.state,
  acquired_at: iso(lease.acquiredAtMs),
  last_heartbeat_at: iso(lease.lastHeartbeatAtMs),
  expires_at: iso(lease.expiresAtMs),
  fence: Number(lease.fence),
  owner: profile(lease.owner),
});

export const OwnerRecord = entity('FileOwner', 'Who leases files.', {
  owner_id: ownerId,
  owner: Profile,
  state: oneOf(ownerStates, 'Whether it lives.'),
  last_heartbeat_at: time('Its last heartbeat.'),
  last_activity_at: time('When it last did something.'),
  expires_at: time('When it counts as dead without another heartbeat.'),
  stopped_at: orNull(time('When it said that it has stopped.')),
  idle_at: orNull(time('When it gives up its files unless it is active before.')),
  ended_at: orNull(time('When its life was over.')),
});

export const fileOwner = (owner: Owner): Static<typeof OwnerRecord> => ({
  owner_id: owner.ownerId,
  owner: profile(owner.profile),
  state: owner.state,
  last_heartbeat_at: iso(owner.lastHeartbeatAtMs),
  last_activity_at: iso(owner.lastActivityAtMs),
  expires_at: iso(owner.expiresAtMs),
  stopped_at: iso(owner.stoppedAtMs),
  idle_at: iso(owner.idleAtMs),
  ended_at: iso(owner.endedAtMs),
});

export const LostFileRecord = entity('LostFile', 'A file that was taken from its owner.', {
  ...file,
  fence,
  lost_at: time('When.'),
  reason: word('Why.'),
});

export const lostFile = ({
  repository,
  path,
  fence,
  lostAtMs,
  reason,
}: LostFile): Static<typeof LostFileRecord> => ({
  repository,
  path,
  fence: Number(fence),
  lost_at: iso(lostAtMs),
  reason,
});

const BlockerRecord = entity('Blocker', 'Who stands in the way of a file.', {
  path: file.path,
  owner_id: ownerId,
  owner: Profile,
  acquired_at: time('When it got the file.'),
  last_heartbeat_at: time('Its last heartbeat.'),
  age_ms: count('How long it has had the file.'),
});

const blocker = (one: Blocker): Static<typeof BlockerRecord> => ({
  path: one.path,
  owner_id: one.ownerId,
  owner: profile(one.owner),
  acquired_at: iso(one.acquiredAtMs),
  last_heartbeat_at: iso(one.lastHeartbeatAtMs),
  age_ms: one.ageMs,
});

const request = {
  contention_id: uuid('What it is called in instructions.'),
  owner_id: word('Who was denied.'),
  repository: file.repository,
  paths: list(Type.String(), 'The files that it was denied.'),
  denied_at: time('When it was denied.'),
};
const blockers = list(BlockerRecord, 'Who stands in the way.');

const ContentionRecord = entity('Contention', 'A request that was denied and has one retry.', {
  ...request,
  retry_at: time('When to retry: three minutes after it was denied, and it never moves.'),
  retry_after_ms: count('How long that is from now.'),
  blockers,
});

const contention = (one: Contention): Static<typeof ContentionRecord> => ({
  contention_id: one.contentionId,
  owner_id: one.ownerId,
  repository: one.repository,
  paths: one.paths,
  denied_at: iso(one.deniedAtMs),
  retry_at: iso(one.retryAtMs),
  retry_after_ms: one.retryAfterMs,
  blockers: one.blockers.map(blocker),
});

const Kept = entity('KeptInstruction', "An instruction that its owner's next request applies.", {
  instruction: oneOf(instructions, 'What was decided.'),
  instructed_at: time('When it was decided.'),
  instructed_by: word('Who decided it.'),
  reason: orNull(word('Why.')),
});

const kept = (one: KeptInstruction): Static<typeof Kept> => ({
  instruction: one.instruction,
  instructed_at: iso(one.instructedAtMs),
  instructed_by: one.instructedBy,
  reason: one.reason,
});

const Report = entity('BlockerReport', 'A request whose retry was blocked too. An operator decides.', {
  ...request,
  retried_at: time('When it was retried.'),
  halted_at: time('When it halted.'),
  retry_s: always(retryS, 'How long it had to wait for its retry, in seconds.'),
  blocker_changed: flag(
    'Another lease stands in the way than when it was denied: of another owner, or of the same owner taken anew.',
  ),
  blockers,
  kept_instruction: orNull(Kept),
});

const report = (one: BlockerReport): Static<typeof Report> => ({
  contention_id: one.contentionId,
  owner_id: one.ownerId,
  repository: one.repository,
  paths: one.paths,
  denied_at: iso(one.deniedAtMs),
  retried_at: iso(one.retriedAtMs),
  halted_at: iso(one.haltedAtMs),
  retry_s: retryS,
  blocker_changed: one.blockerChanged,
  blockers: one.blockers.map(blocker),
  kept_instruction: one.keptInstruction && kept(one.keptInstruction),
});

export const BlockedRow = Type.Union([
  entity('ContendedRow', 'Who waits for its retry.', {
    state: always('CONTENDED', 'It waits for its retry.'),
    ...ContentionRecord.properties,
  }),
  entity('HaltedRow', 'Who has halted and waits for an instruction.', {
    state: always('HALTED', 'It waits for an instruction.'),
    ...Report.properties,
  }),
]);

/** One row of the list, with the fields of the answer that its owner received. */
export const blockedRow = (blocked: Blocked): Static<typeof BlockedRow> =>
  blocked.kind === 'contended'
    ? { state: 'CONTENDED', ...contention(blocked.contention) }
    : { state: 'HALTED', ...report(blocked.report) };

const Granted = entity('FilesGranted', 'All files are granted.', {
  outcome: always('granted', 'They are granted.'),
  leases: list(FileLeaseRecord, 'One for each file.'),
});
const Halted = entity('FilesHalted', 'The retry was blocked too: stop, and wait for an instruction.', {
  outcome: always('halted', 'An operator decides.'),
  blocker_report: Report,
});
export const Acquired = Type.Union([
  Granted,
  entity('FilesContended', 'None is granted, because another owner holds one of them.', {
    outcome: always('contended', 'There is one retry.'),
    contention: ContentionRecord,
  }),
  Halted,
]);

export function acquired(outcome: FileOutcome): Static<typeof Acquired> {
  if (outcome.kind === 'granted') return { outcome: 'granted', leases: outcome.leases.map(fileLease) };
  if (outcome.kind === 'contended')
    return { outcome: 'contended', contention: contention(outcome.contention) };
  return { outcome: 'halted', blocker_report: report(outcome.report) };
}

export const Instructed = Type.Union([
  Granted,
  Halted,
  entity('ContentionAbandoned', 'The contention is closed.', {
    outcome: always('abandoned', 'It is closed.'),
    contention_id: request.contention_id,
  }),
  entity('InstructionKept', 'The owner is not alive: its next request applies the instruction.', {
    outcome: always('kept', 'It is kept.'),
    contention_id: request.contention_id,
    instruction: oneOf(instructions, 'What is kept.'),
  }),
]);

export function instructed(outcome: InstructOutcome): Static<typeof Instructed> {
  if (outcome.kind === 'granted') return { outcome: 'granted', leases: outcome.leases.map(fileLease) };
  if (outcome.kind === 'halted') return { outcome: 'halted', blocker_report: report(outcome.report) };
  const { contentionId } = outcome;
  return outcome.kind === 'kept'
    ? { outcome: 'kept', contention_id: contentionId, instruction: outcome.instruction }
    : { outcome: 'abandoned', contention_id: contentionId };
}

export const NotReleasedFile = entity('FileNotReleased', 'A file that was named and not given back.', {
  path: file.path,
  code: oneOf(['not_held', 'stale_fence'], 'Why, as a word.'),
  detail: word('Why.'),
});
