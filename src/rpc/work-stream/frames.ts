/**
 * The request frames of StreamWork: the heartbeats and owners of a heartbeat stream, with credits and
 * releases beside them. Each field is visited once. Tags come from the descriptors of `leases.proto`.
 *
 * Most releases report success and nothing else. They are read directly from the bytes; all others are
 * decoded with the generated code. A credit is decoded with the generated code when its class is new to the
 * stream. Like heartbeats, releases are read in slices, at the pace at which their answers leave.
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
import { type FrameSlice, SlicedFrame } from '../heartbeat-stream/frames.ts';
import type { WorkerName } from '../heartbeat-stream/worker-name.ts';
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
 * How many more jobs of a request class the worker wants. `bytes` is the encoded class: the same bytes mean
 * the same class.
 */
export interface CreditField {
  jobs: number;
  bytes: string;
  /** Decodes the class. */
  wanted(): CreditRequest;
}

/** The jobs that a credit is for, and the TTL of their leases. Null means the TTL of the settings. */
export interface CreditRequest {
  filter: ClaimFilter;
  ttlS: number | null;
}

export interface WorkSlice extends FrameSlice {
  readonly credits: CreditField[];
  readonly releases: NamedRelease[];
  readonly refusedReleases: RefusedRelease[];
  /** The weight of the releases alone. */
  releaseWeight: number;
}

const frameField = StreamWorkRequestSchema.field;
const creditsTag = tagOf(frameField.credits);
const releasesTag = tagOf(frameField.releases);
const workerTag = tagOf(frameField.workerId);
const jobsTag = tagOf(StreamWorkRequest_CreditSchema.field.jobs);
const releaseField = ReleaseLeaseRequestSchema.field;
const leaseIdTag = tagOf(releaseField.leaseId);
const workerIdTag = tagOf(releaseField.workerId);
const tokenTag = tagOf(releaseField.leaseToken);
const statusTag = tagOf(releaseField.status);

/** One StreamWorkRequest of a stream whose worker is known. */
export class WorkFrame extends SlicedFrame<WorkSlice> {
  readonly #workerId: string;
  #workerInFrame: string | DomainError = '';
  #credits = 0;
  #releases = 0;

  constructor(bytes: Buffer, worker: WorkerName, workerId: string) {
    super(bytes, worker, workerId);
    this.#workerId = workerId;
  }

  /** The worker's id at the end of a first frame, which the items before it need. */
  static workerIn(bytes: Buffer): string {
    const reader = new WireReader(bytes);
    const end = bytes.length;
    let workerId = '';
    try {
      while (reader.at < end) {
        const tag = reader.tag(end);
        if (tag !== workerTag) {
          reader.skip(tag, end);
          continue;
        }
        const textEnd = reader.contentEnd(end);
        workerId = reader.text(reader.at, textEnd);
        reader.at = textEnd;
      }
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw new DomainError('invalid_request', `the frame cannot be read: it ${error.message}`);
    }
    return workerId;
  }

  override next(weightMax: number): WorkSlice {
    const slice = super.next(weightMax);
    const workerId = this.#workerInFrame;
    if (this.done && workerId !== '' && workerId !== this.#workerId)
      throw invalid('worker_id', 'is another than the one of the first frame');
    return slice;
  }

  protected override newSlice(): WorkSlice {
    return {
      heartbeats: [],
      refused: [],
      refusals: [],
      owners: [],
      refusedOwners: [],
      ownerRefusals: [],
      weight: 0,
      credits: [],
      releases: [],
      refusedReleases: [],
      releaseWeight: 0,
    };
  }

  protected override readOther(tag: number, end: number, slice: WorkSlice): void {
    const { reader } = this;
    if (tag === releasesTag) {
      this.#release(reader.contentEnd(end), slice);
      this.#releases++;
    } else if (tag === creditsTag) {
      slice.credits.push(this.#credit(reader.contentEnd(end)));
      this.#credits++;
    } else if (tag === workerTag) this.#readWorker(reader.contentEnd(end));
    else reader.skip(tag, end);
  }

  protected override nameOf(tag: number): string {
    if (tag === creditsTag) return `credits[${this.#credits}]`;
    if (tag === releasesTag) return `releases[${this.#releases}]`;
    return tag === workerTag ? 'worker_id' : super.nameOf(tag);
  }

  /** An empty text counts as absent. A repeated field replaces the one before. */
  #readWorker(end: number): void {
    const { reader } = this;
    this.#workerInFrame = reader.at === end ? '' : this.worker.read(reader, reader.at, end);
    reader.at = end;
  }

  #credit(end: number): CreditField {
    const { reader } = this;
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
        bytes += reader.bytes.toString('latin1', at, reader.at);
      }
    }
    if (jobs > limits.creditJobs) throw invalid(`${field}.jobs`, `must be from 0 to ${limits.creditJobs}`);
    const wanted = () => creditRequestOf(reader.bytes.subarray(start, end), field, this.#workerId);
    return { jobs, bytes, wanted };
  }

  #release(end: number, slice: WorkSlice): void {
    const { reader } = this;
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
    slice.weight += weight;
    slice.releaseWeight += weight;
    const kind = uuidKind(reader.bytes, leaseAt, leaseEnd);
    const named = nameOf(kind, reader, leaseAt, leaseEnd);
    try {
      const name = workerEnd === workerAt ? this.#workerId : reader.text(workerAt, workerEnd);
      const token = tokenEnd < 0 ? null : reader.text(tokenAt, tokenEnd);
      const release = isPlain
        ? plainRelease(named, name, token, status)
        : decodedRelease(reader.bytes.subarray(start, end), name);
      if (kind === 0) throw leaseNotFound(named);
      slice.releases.push({ named, release: { ...release, leaseId: leaseIdOf(kind, named) }, weight });
    } catch (error) {
      if (!(error instanceof DomainError)) throw error;
      slice.refusedReleases.push({ named, weight, problem: error });
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
    holder: null,
    token,
    jobId: null,
    status: toFinalStatus(status, 'status'),
    resultData: null,
    error: null,
    errorDetail: null,
    retryable: false,
    metrics: null,
    message: null,
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
