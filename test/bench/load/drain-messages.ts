/** Work over gRPC: requests that are encoded once, and as much of their answers as has to be read. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { FinalStatus } from '../../../gen/leasehold/v1/jobs_pb.js';
import {
  AcquireLeaseRequestSchema,
  AcquireLeaseResponseSchema,
  ReleaseLeaseRequestSchema,
  ReleaseLeaseResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';

export const paths = {
  acquire: '/leasehold.v1.LeasesService/AcquireLease',
  release: '/leasehold.v1.LeasesService/ReleaseLease',
};

export const acquire = (workerId: string, stream: string, waitMs?: number): Buffer => {
  const words = { workerId, streams: [stream], ...(waitMs === undefined ? {} : { waitMs }) };
  return Buffer.from(toBinary(AcquireLeaseRequestSchema, create(AcquireLeaseRequestSchema, words)));
};

const uuidChars = 36;
/** The id is the first field: its key and its length are a byte each. */
const idAt = 2;

/** A release of whichever lease of one worker, which went well. */
export class Releases {
  readonly #template: Buffer;

  constructor(workerId: string) {
    const words = { leaseId: '0'.repeat(uuidChars), workerId, status: FinalStatus.SUCCEEDED };
    this.#template = Buffer.from(
      toBinary(ReleaseLeaseRequestSchema, create(ReleaseLeaseRequestSchema, words)),
    );
  }

  of(leaseId: Buffer): Buffer {
    const message = Buffer.from(this.#template);
    leaseId.copy(message, idAt);
    return message;
  }
}

export interface Granted {
  /** The id, in the bytes of the answer. */
  leaseId: Buffer;
  jobId: string;
}

const firstField = (1 << 3) | 2;
const secondField = (2 << 3) | 2;

/**
 * The lease in an answer to AcquireLease, undefined where there was none. Read off its place: the first field is the grant,
 * the first of that the lease, whose first two are the lease's id and the job's.
 */
export function granted(answer: Buffer): Granted | undefined {
  if (answer[0] !== firstField) return undefined;
  const leaseAt = skipLength(answer, 1);
  const at = skipLength(answer, leaseAt + 1);
  const jobAt = at + idAt + uuidChars;
  const isKnown =
    answer[leaseAt] === firstField &&
    answer[at] === firstField &&
    answer[at + 1] === uuidChars &&
    answer[jobAt] === secondField &&
    answer[jobAt + 1] === uuidChars;
  if (!isKnown) throw new Error('a grant does not begin with a lease, its id and that of its job');
  return {
    leaseId: answer.subarray(at + idAt, jobAt),
    jobId: answer.toString('latin1', jobAt + idAt, jobAt + idAt + uuidChars),
  };
}

function skipLength(bytes: Buffer, from: number): number {
  let at = from;
  while ((bytes[at++] as number) >= 0x80);
  return at;
}

/** Throws where a worker was not given what it seems, or where a release did not end it: the first of each is read in full. */
export function checkRound(grant: Buffer, { leaseId, jobId }: Granted, release: Buffer): void {
  const { outcome } = fromBinary(AcquireLeaseResponseSchema, grant);
  if (outcome.case !== 'granted') throw new Error('a lease was read from an answer that grants none');
  const { lease } = outcome.value;
  const name = leaseId.toString('latin1');
  if (lease?.leaseId !== name || lease.jobId !== jobId) throw new Error('a lease was read wrongly');
  const released = fromBinary(ReleaseLeaseResponseSchema, release);
  if (released.lease?.leaseId !== name || released.job?.jobId !== jobId || released.requeued)
    throw new Error('a release did not end its lease');
}
