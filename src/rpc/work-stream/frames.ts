/**
 * The frames of StreamWork, except for the fields they share with the heartbeat stream. Requests carry
 * credits and releases; responses carry grants and the answers to releases. Field numbers are those of
 * `leases.proto`.
 *
 * Most releases report success and nothing else. They are read directly from the bytes; all others are
 * decoded with the generated code. Like heartbeats, releases are read in slices, at the pace at which their
 * answers leave.
 */

import { fromBinary } from '@bufbuild/protobuf';
import {
  type StreamWorkRequest_Credit as Credit,
  ReleaseLeaseRequestSchema,
  StreamWorkRequest_CreditSchema,
  StreamWorkRequestSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError, invalid, leaseNotFound } from '../../domain/errors.ts';
import type { Release } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { parse } from '../../domain/requests/parsers.ts';
import { filterOf } from '../../engine/leases/acquirer.ts';
import { unreadable } from '../errors.ts';
import { releaseOfMessage, toFinalStatus } from '../leases/convert.ts';
import { tagOf } from '../wire/fields.ts';
import { checkName, checkToken, leaseIdOf, nameOf, uuidKind, weightOf } from '../wire/frame-fields.ts';
import { WireError, WireReader } from '../wire/reader.ts';

/** A worker's release, and its weight in the stream's memory until it is answered. */
export interface NamedRelease {
  /** The lease id as the worker sent it. If it cannot be a lease id, only its beginning. */
  readonly named: string;
  readonly release: Release;
  readonly weight: number;
}

/** A release that is refused, and why. */
export interface RefusedRelease {
  readonly named: string;
  readonly weight: number;
  readonly problem: DomainError;
}

/**
 * How many more jobs of a kind the worker wants. `bytes` is the encoded kind: the same bytes mean the same
 * kind.
 */
export interface CreditField {
  jobs: number;
  bytes: string;
  /** Decodes the kind. `workerId` is the worker of the stream. */
  wanted(workerId: string): CreditRequest;
}

/** The jobs that a credit is for, and the TTL of their leases. Null means the TTL of the settings. */
export interface CreditRequest {
  filter: ClaimFilter;
  ttlS: number | null;
}

export interface WorkSlice {
  credits: CreditField[];
  releases: NamedRelease[];
  refused: RefusedRelease[];
  weight: number;
}

const frameField = StreamWorkRequestSchema.field;
const heartbeatsTag = tagOf(frameField.heartbeats);
const ownersTag = tagOf(frameField.owners);
const creditsTag = tagOf(frameField.credits);
const releasesTag = tagOf(frameField.releases);
const workerTag = tagOf(frameField.workerId);
const jobsTag = tagOf(StreamWorkRequest_CreditSchema.field.jobs);
const releaseField = ReleaseLeaseRequestSchema.field;
const leaseIdTag = tagOf(releaseField.leaseId);
const workerIdTag = tagOf(releaseField.workerId);
const tokenTag = tagOf(releaseField.leaseToken);
const statusTag = tagOf(releaseField.status);

/** One StreamWorkRequest. The constructor scans the whole frame before any part of it takes effect. */
export class WorkFrame {
  readonly bytes: Buffer;
  readonly #reader: WireReader;
  #credits = 0;
  #releases = 0;
  /** The frame contains heartbeats or owners. */
  hasHeartbeats = false;
  /** The worker's id, if the frame contains it. */
  workerId: string | undefined;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.#reader = new WireReader(bytes);
    this.#scan();
  }

  /** The whole frame has been read. */
  get done(): boolean {
    return this.#reader.at >= this.bytes.length;
  }

  /** Reads the next slice, up to a weight of its releases. */
  next(weightMax: number, workerId: string): WorkSlice {
    const reader = this.#reader;
    const end = this.bytes.length;
    const piece: WorkSlice = { credits: [], releases: [], refused: [], weight: 0 };
    let tag = 0;
    try {
      while (reader.at < end && piece.weight < weightMax) {
        tag = reader.tag(end);
        if (tag === releasesTag) {
          this.#release(reader.contentEnd(end), workerId, piece);
          this.#releases++;
        } else if (tag === creditsTag) {
          piece.credits.push(this.#credit(reader.contentEnd(end)));
          this.#credits++;
        } else reader.skip(tag, end);
      }
      return piece;
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      const field = tag === creditsTag ? `credits[${this.#credits}]` : `releases[${this.#releases}]`;
      throw invalid(field, `cannot be read: the frame ${error.message}`);
    }
  }

  #scan(): void {
    const reader = new WireReader(this.bytes);
    const end = this.bytes.length;
    try {
      while (reader.at < end) {
        const tag = reader.tag(end);
        if (tag === heartbeatsTag || tag === ownersTag) this.hasHeartbeats = true;
        if (tag === workerTag) {
          const nameEnd = reader.contentEnd(end);
          this.workerId = reader.text(reader.at, nameEnd);
          reader.at = nameEnd;
        } else reader.skip(tag, end);
      }
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw new DomainError('invalid_request', `the frame cannot be read: it ${error.message}`);
    }
  }

  #credit(end: number): CreditField {
    const reader = this.#reader;
    const start = reader.at;
    const field = `credits[${this.#credits}]`;
    let jobs = 0;
    let bytes = '';
    while (reader.at < end) {
      const at = reader.at;
      const tag = reader.tag(end);
      if (tag === jobsTag) jobs = reader.whole(end);
      else {
        reader.skip(tag, end);
        bytes += this.bytes.toString('latin1', at, reader.at);
      }
    }
    if (jobs > limits.creditJobs) throw invalid(`${field}.jobs`, `must be from 0 to ${limits.creditJobs}`);
    return { jobs, bytes, wanted: (workerId) => creditRequestOf(this.bytes.subarray(start, end), field, workerId) };
  }

  #release(end: number, workerId: string, piece: WorkSlice): void {
    const reader = this.#reader;
    const start = reader.at;
    let leaseAt = 0;
    let leaseEnd = 0;
    let workerAt = 0;
    let workerEnd = 0;
    let tokenAt = 0;
    let tokenEnd = -1;
    let status = 0;
    let isPlain = true;
    while (reader.at < end) {
      const tag = reader.tag(end);
      if (tag === leaseIdTag) {
        leaseEnd = reader.contentEnd(end);
        leaseAt = reader.at;
        reader.at = leaseEnd;
      } else if (tag === tokenTag) {
        tokenEnd = reader.contentEnd(end);
        tokenAt = reader.at;
        reader.at = tokenEnd;
      } else if (tag === statusTag) {
        status = reader.whole(end);
      } else if (tag === workerIdTag) {
        workerEnd = reader.contentEnd(end);
        workerAt = reader.at;
        reader.at = workerEnd;
      } else {
        isPlain = false;
        reader.skip(tag, end);
      }
    }
    const weight = weightOf(end - start);
    piece.weight += weight;
    const kind = uuidKind(reader.bytes, leaseAt, leaseEnd);
    const named = nameOf(kind, reader, leaseAt, leaseEnd);
    try {
      const name = workerEnd === workerAt ? workerId : reader.text(workerAt, workerEnd);
      const token = tokenEnd < 0 ? null : reader.text(tokenAt, tokenEnd);
      const release = isPlain
        ? plainRelease(named, name, token, status)
        : decodedRelease(reader.bytes.subarray(start, end), name);
      if (kind === 0) throw leaseNotFound(named);
      piece.releases.push({ named, release: { ...release, leaseId: leaseIdOf(kind, named) }, weight });
    } catch (error) {
      if (!(error instanceof DomainError)) throw error;
      piece.refused.push({ named, weight, problem: error });
    }
  }
}

/** The result of `decodedRelease` for a release that has only these fields. */
function plainRelease(leaseId: string, workerId: string, token: string | null, status: number): Release {
  checkName(workerId, 'worker_id');
  if (token !== null) checkToken(token);
  return {
    leaseId,
    workerId,
    token,
    jobId: null,
    status: toFinalStatus(status, 'status'),
    resultData: null,
    error: null,
    errorDetail: null,
    retryable: false,
    metrics: null,
    bytes: 0,
  };
}

function decodedRelease(bytes: Uint8Array, workerId: string): Release {
  const message = decoded(() => fromBinary(ReleaseLeaseRequestSchema, bytes));
  return releaseOfMessage({ ...message, workerId });
}

function creditRequestOf(bytes: Uint8Array, field: string, workerId: string): CreditRequest {
  const credit: Credit = decoded(() => fromBinary(StreamWorkRequest_CreditSchema, bytes));
  try {
    const command = parse.acquireLease({
      worker_id: workerId,
      max_units: credit.maxUnits,
      constraints_capabilities: credit.constraintsCapabilities,
      addon_id: credit.addonId,
      accept_job_types: credit.acceptJobTypes,
      streams: credit.streams,
      ttl_sec: credit.ttlSec,
    });
    return { filter: filterOf(command), ttlS: command.ttl_sec ?? null };
  } catch (error) {
    if (!(error instanceof DomainError) || error.field === undefined) throw error;
    throw new DomainError(error.code, `${field}.${error.detail}`, { field: `${field}.${error.field}` });
  }
}

function decoded<Message>(decode: () => Message): Message {
  try {
    return decode();
  } catch (error) {
    throw unreadable(error);
  }
}
