import Type from 'typebox';
import {
  AcquireFiles,
  InstructBlocker,
  ListBlockers,
  ListFileLeases,
  OwnerReport,
  ReleaseFiles,
} from '../../domain/requests/files.ts';
import * as example from '../openapi/examples.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { always, count, flag, list, nextCursor, time, word } from '../openapi/schema-types.ts';
import {
  Acquired,
  BlockedRow,
  FileLeaseRecord,
  Instructed,
  LostFileRecord,
  NotReleasedFile,
  OwnerRecord,
} from './schemas.ts';

const { fileLease, contention, report, owner } = example;
const repository = fileLease.repository;
const OneOwner = Type.Object({ owner: OwnerRecord });

/** Documentation of the file contract. */
export const fileAbout = operations('Files', {
  acquireFiles: {
    summary: 'Lease files, all or none',
    details:
      'Denied once, there is one retry three minutes later; denied again, it halts until an operator decides. Neither depends on heartbeats of the owner that waits. A sub-agent, whose `owner` names its `parent_owner_id`, borrows what its parent holds. A client that takes a new owner each time names its stable `caller_id`, whose contentions and halts then decide.',
    body: requestBody(AcquireFiles, {
      owner_id: 'ann',
      repository,
      paths: ['src/a.ts'],
      owner: { agent: 'claude-code', host: 'laptop', pid: 4242, branch: 'main' },
    }),
    answers: {
      200: answer(
        'Granted, contended until `retry_at`, or halted.',
        Acquired,
        { outcome: 'granted', leases: [fileLease] },
        { outcome: 'contended', contention },
        { outcome: 'halted', blocker_report: report },
      ),
    },
    errors: [],
  },
  releaseFiles: {
    summary: 'Release files: some, those of a repository, or all (`*`)',
    details: 'What a sub-agent gives back without a commit returns to its parent, where that is alive.',
    body: requestBody(
      ReleaseFiles,
      { owner_id: 'ann', repository, reason: 'COMMITTED' },
      { owner_id: 'ann', repository: '*', reason: 'ENDED' },
      { owner_id: 'ann', repository, paths: ['src/a.ts'], fences: { 'src/a.ts': 4712 }, reason: 'FAILED' },
    ),
    answers: {
      200: answer(
        'What was given back, and what was not.',
        Type.Object({
          released: list(FileLeaseRecord, 'What was given back.'),
          not_released: list(NotReleasedFile, 'What was named and was not.'),
        }),
        { released: [{ ...fileLease, lease_state: 'RELEASED' }], not_released: [] },
      ),
    },
    errors: ['owner_not_found'],
  },
  heartbeatOwner: {
    summary: 'Extend an owner and all its files',
    body: requestBody(OwnerReport, { owner_id: 'ann' }),
    answers: {
      200: answer(
        'It is kept.',
        Type.Object({
          ok: always(true, 'It is kept.'),
          owner_id: word('The owner.'),
          expires_at: time('When the owner counts as dead without another heartbeat.'),
          ttl_remaining_ms: count('How long that is from now.'),
          drain: flag('The server is shutting down.'),
          lost_files: list(LostFileRecord, 'Files that were taken from it.'),
        }),
        {
          ok: true,
          owner_id: 'ann',
          expires_at: '2026-02-06T20:11:30.000Z',
          ttl_remaining_ms: 60_000,
          drain: false,
          lost_files: [],
        },
      ),
    },
    errors: ['owner_not_found', 'owner_not_alive'],
  },
  recordActivity: {
    summary: 'Report that an owner is active',
    answers: { 200: answer('The owner.', OneOwner, { owner }) },
    errors: ['owner_not_found', 'owner_not_alive'],
  },
  stopOwner: {
    summary: 'Report that an owner has stopped',
    details: 'It gives up its files unless it is active within 30 seconds.',
    answers: {
      200: answer('The owner.', OneOwner, {
        owner: {
          ...owner,
          stopped_at: '2026-02-06T20:10:40.000Z',
          idle_at: '2026-02-06T20:11:10.000Z',
        },
      }),
    },
    errors: ['owner_not_found', 'owner_not_alive'],
  },
  endOwner: {
    summary: 'End an owner, and release all its files',
    details: 'Its contentions and halts stay: ending an owner is no way round the wait or the halt.',
    answers: {
      200: answer(
        'The owner, and what it gave back.',
        Type.Object({ owner: OwnerRecord, released: list(FileLeaseRecord, 'What was given back.') }),
        {
          owner: { ...owner, state: 'ENDED', ended_at: '2026-02-06T20:10:50.000Z' },
          released: [{ ...fileLease, lease_state: 'RELEASED' }],
        },
      ),
    },
    errors: ['owner_not_found'],
  },
  listFileLeases: {
    summary: 'List the active leases of files',
    query: ListFileLeases,
    answers: {
      200: answer(
        'A page of them.',
        Type.Object({ leases: list(FileLeaseRecord, 'The leases.'), next_cursor: nextCursor }),
        { leases: [fileLease], next_cursor: null },
      ),
    },
    errors: [],
  },
  listBlockers: {
    summary: 'List waiting and halted requests for files',
    details: 'A halt is listed until it is instructed, whether or not its owner is alive.',
    query: ListBlockers,
    answers: {
      200: answer(
        'A page of them.',
        Type.Object({ blockers: list(BlockedRow, 'One for each contention.'), next_cursor: nextCursor }),
        { blockers: [{ state: 'CONTENDED', ...contention }], next_cursor: null },
        { blockers: [{ state: 'HALTED', ...report }], next_cursor: null },
      ),
    },
    errors: [],
  },
  instructBlocker: {
    summary: 'Instruct a halted request',
    details:
      'RETRY is judged at once; ABANDON closes the contention; FORCE_RELEASE takes the files from the owners that hold them. For an owner that is not alive, RETRY and FORCE_RELEASE are kept, and applied at its next request.',
    body: requestBody(InstructBlocker, {
      instruction: 'RETRY',
      reason: 'ann has gone home',
      requested_by: 'carl',
    }),
    answers: {
      200: answer(
        'What came of it.',
        Instructed,
        { outcome: 'granted', leases: [{ ...fileLease, owner_id: 'bob' }] },
        { outcome: 'halted', blocker_report: report },
        { outcome: 'abandoned', contention_id: contention.contention_id },
        { outcome: 'kept', contention_id: contention.contention_id, instruction: 'FORCE_RELEASE' },
      ),
    },
    errors: ['contention_not_found', 'illegal_transition'],
  },
});
