/** Heartbeats for seeded leases, encoded once and sent many times, and as much of their answers as has to be read. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  HeartbeatRequestSchema,
  HeartbeatResponseSchema,
  type LeaseVerdict,
  LeaseVerdictSchema,
  StreamHeartbeatsRequestSchema,
  StreamHeartbeatsResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { post } from './lean-http.ts';
import {
  jobId,
  type LeaseSet,
  leaseId,
  leasesOf,
  scattered,
  workerName,
  workerOf,
  workersOf,
} from './lease-set.ts';
import { headroomBytes, withHeadroom } from './link.ts';

export const paths = {
  heartbeat: '/leasehold.v1.LeasesService/Heartbeat',
  streamHeartbeats: '/leasehold.v1.LeasesService/StreamHeartbeats',
};

/** A sign of life for all that one worker holds. */
export interface Frame {
  message: Buffer;
  leases: number;
}

export function frameOf(set: LeaseSet, worker: number): Frame {
  const workerId = workerName(worker);
  const leases = leasesOf(set, worker);
  const heartbeats = leases.map((lease) => ({ leaseId: leaseId(set, lease), workerId }));
  const request = create(StreamHeartbeatsRequestSchema, { heartbeats });
  return { message: withHeadroom(toBinary(StreamHeartbeatsRequestSchema, request)), leases: leases.length };
}

export const framesOf = (set: LeaseSet): Frame[] =>
  scattered(workersOf(set)).map((worker) => frameOf(set, worker));

/** Unary requests, one for each lease. */
export const heartbeatsOf = (set: LeaseSet): Buffer[] =>
  scattered(set.leases).map((lease) =>
    Buffer.from(
      toBinary(
        HeartbeatRequestSchema,
        create(HeartbeatRequestSchema, {
          leaseId: leaseId(set, lease),
          workerId: workerOf(set, lease),
        }),
      ),
    ),
  );

/** The routes of the two contracts that have a heartbeat. */
export type RestContract = 'heartbeat' | 'queue';

export const restHeartbeatsOf = (set: LeaseSet, contract: RestContract): Buffer[] =>
  scattered(set.leases).map((lease) => {
    const worker_id = workerOf(set, lease);
    const id = leaseId(set, lease);
    return contract === 'heartbeat'
      ? post(`/api/system/scheduler/leases/${id}/heartbeat`, { worker_id })
      : post(`/api/scheduler/lease/${id}/heartbeat`, {
          job_id: jobId(set, lease),
          worker_id,
          progress: 0.65,
          message: 'rendering step 23/35',
        });
  });

/** Throws where an answer to a unary heartbeat does not say that the lease goes on. */
export function checkExtended(answer: Uint8Array, { ttlS }: LeaseSet): void {
  checkRemaining(fromBinary(HeartbeatResponseSchema, answer), ttlS);
}

/** Throws where frames of verdicts, all of them answers to one frame, are not what they should be. */
export function checkVerdicts(answers: readonly Uint8Array[], asked: Frame, { ttlS }: LeaseSet): void {
  const verdicts = answers.flatMap((bytes) => fromBinary(StreamHeartbeatsResponseSchema, bytes).verdicts);
  const request = fromBinary(StreamHeartbeatsRequestSchema, asked.message.subarray(headroomBytes));
  const wanted = request.heartbeats.map((heartbeat) => heartbeat.leaseId).sort();
  const found = verdicts.map((verdict) => verdict.leaseId).sort();
  if (wanted.join() !== found.join())
    throw new Error(`${wanted.length} leases were kept, and the verdicts are on others`);
  for (const { outcome, leaseId } of verdicts) {
    if (outcome.case !== 'extended') throw new Error(`${leaseId} was not extended but ${outcome.case}`);
    checkRemaining(outcome.value, ttlS);
  }
}

interface Remaining {
  expiresAt?: { seconds: bigint } | undefined;
  ttlRemainingMs: bigint;
}

/** Clocks of one machine; between the commit and this line may lie a second of a machine that is busy. */
const slackMs = 10_000;

function checkRemaining({ expiresAt, ttlRemainingMs }: Remaining, ttlS: number): void {
  const remainingMs = Number(ttlRemainingMs);
  const untilMs = Number(expiresAt?.seconds ?? 0n) * 1000 - Date.now();
  if (Math.abs(remainingMs - ttlS * 1000) > slackMs || Math.abs(untilMs - ttlS * 1000) > slackMs)
    throw new Error(`kept for ${ttlS} s, but it has ${remainingMs} ms left and expires in ${untilMs} ms`);
}

/** Verdicts that came, one after another. */
export interface VerdictListener {
  extended(): void;
  lost(verdict: LeaseVerdict): void;
}

const listField = (1 << 3) | 2;
const extendedField = (2 << 3) | 2;
const uuidChars = 36;

/**
 * Tells of each verdict in a frame. What became of a lease is read off its place in the bytes: after the id, whose length
 * is known, comes the field of one of the two outcomes. Only a loss is decoded.
 */
export function readVerdicts(answer: Buffer, listener: VerdictListener): void {
  let at = 0;
  while (at < answer.length) {
    if (answer[at++] !== listField) throw new Error('a frame of verdicts has something else in it');
    let length = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = answer[at++] as number;
      length |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    const end = at + length;
    const isKnown = answer[at] === listField && answer[at + 1] === uuidChars;
    if (isKnown && answer[at + 2 + uuidChars] === extendedField) listener.extended();
    else listener.lost(fromBinary(LeaseVerdictSchema, answer.subarray(at, end)));
    at = end;
  }
}
