/**
 * The frames of the heartbeat stream, read directly from the wire into the domain. Tags come from the
 * descriptors of `leases.proto`. The tests also read every frame with the generated code.
 *
 * A frame may hold millions of heartbeats, and each answer is larger than its heartbeat. A frame is therefore
 * read in slices, at the pace at which the answers leave. A frame of one slice, as every well-behaved client
 * sends, is read as a whole before any part takes effect. If a larger frame turns out to be malformed, the
 * slices before the error have taken effect.
 */
import {
  StreamHeartbeatsRequest_HeartbeatSchema,
  StreamHeartbeatsRequest_OwnerSchema,
  StreamHeartbeatsRequestSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { type DomainError, invalid, leaseNotFound } from '../../domain/errors.ts';
import type { OwnerHeartbeat } from '../../domain/files/file-lease.ts';
import type { Heartbeat, Lost } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { checkText } from '../../domain/requests/json-check.ts';
import { tagOf } from '../wire/fields.ts';
import { checkName, checkToken, cut, leaseIdOf, nameOf, uuidKind, weightOf } from '../wire/frame-fields.ts';
import { WireError, WireReader } from '../wire/reader.ts';
import { attempt, type WorkerName } from './worker-name.ts';

/** A lease that the server still has to answer. */
export interface Named {
  /** The lease id as the worker sent it. If it cannot be a lease id, only its beginning. */
  readonly named: string;
  /** Its share of the stream's memory until the answer leaves, in heartbeats of usual length. */
  readonly weight: number;
}

/**
 * A heartbeat that the engine can process: its lease id is a UUID in lower case, and its other fields are
 * checked.
 */
export interface NamedHeartbeat extends Heartbeat, Named {}

/** A heartbeat of an owner of file leases, whose name is checked. */
export interface NamedOwner extends OwnerHeartbeat, Named {}

/** A part of a frame: the heartbeats to process, and the invalid ones, each with its verdict. */
export interface FrameSlice {
  readonly heartbeats: NamedHeartbeat[];
  readonly refused: Named[];
  readonly refusals: Lost[];
  readonly owners: NamedOwner[];
  readonly refusedOwners: Named[];
  readonly ownerRefusals: Lost[];
  /** The weight of all items. */
  weight: number;
}

export const emptySlice = (): FrameSlice => ({
  heartbeats: [],
  refused: [],
  refusals: [],
  owners: [],
  refusedOwners: [],
  ownerRefusals: [],
  weight: 0,
});

const { heartbeats, owners } = StreamHeartbeatsRequestSchema.field;
const heartbeatsTag = tagOf(heartbeats);
const ownersTag = tagOf(owners);
const ownerIdTag = tagOf(StreamHeartbeatsRequest_OwnerSchema.field.ownerId);
const { field } = StreamHeartbeatsRequest_HeartbeatSchema;
const leaseIdTag = tagOf(field.leaseId);
const workerIdTag = tagOf(field.workerId);
const tokenTag = tagOf(field.leaseToken);
const progressTag = tagOf(field.progress);
const messageTag = tagOf(field.message);

/**
 * One frame with heartbeats and owners. `next` visits each field once. A subclass reads the fields that only
 * its stream has.
 */
export abstract class SlicedFrame<Slice extends FrameSlice> {
  protected readonly reader: WireReader;
  protected readonly worker: WorkerName;
  readonly #workerId: string | undefined;
  #heartbeats = 0;
  #owners = 0;

  /** `workerId` is the worker of heartbeats that contain no worker id. */
  constructor(bytes: Buffer, worker: WorkerName, workerId?: string) {
    this.reader = new WireReader(bytes);
    this.worker = worker;
    this.#workerId = workerId;
  }

  /** The whole frame has been read. */
  get done(): boolean {
    return this.reader.at >= this.reader.bytes.length;
  }

  /** How many heartbeats have been read. */
  get heartbeats(): number {
    return this.#heartbeats;
  }

  /** How many owners have been read. */
  get owners(): number {
    return this.#owners;
  }

  /** Reads the next items, up to a weight. Throws `invalid_request` if the frame cannot be read. */
  next(weightMax: number): Slice {
    const { reader } = this;
    const end = reader.bytes.length;
    const slice = this.newSlice();
    let tag = 0;
    try {
      while (reader.at < end && slice.weight < weightMax) {
        tag = reader.tag(end);
        if (tag === heartbeatsTag) {
          this.#readHeartbeat(reader.contentEnd(end), slice);
          this.#heartbeats++;
        } else if (tag === ownersTag) {
          this.#readOwner(reader.contentEnd(end), slice);
          this.#owners++;
        } else this.readOther(tag, end, slice);
      }
      return slice;
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw invalid(this.nameOf(tag), `cannot be read: the frame ${error.message}`);
    }
  }

  protected abstract newSlice(): Slice;

  /** Reads a field that is neither a heartbeat nor an owner. */
  protected abstract readOther(tag: number, end: number, slice: Slice): void;

  /** The item that is being read, for error messages. */
  protected nameOf(tag: number): string {
    return tag === ownersTag ? `owners[${this.#owners}]` : `heartbeats[${this.#heartbeats}]`;
  }

  #readHeartbeat(end: number, slice: FrameSlice): void {
    const { reader } = this;
    const start = reader.at;
    let leaseAt = 0;
    let leaseEnd = 0;
    let workerAt = 0;
    let workerEnd = 0;
    let tokenAt = 0;
    let tokenEnd = -1;
    let messageAt = 0;
    let messageEnd = -1;
    let progress: number | null = null;
    while (reader.at < end) {
      const tag = reader.tag(end);
      if (tag === leaseIdTag) {
        leaseEnd = reader.contentEnd(end);
        leaseAt = reader.at;
        reader.at = leaseEnd;
      } else if (tag === workerIdTag) {
        workerEnd = reader.contentEnd(end);
        workerAt = reader.at;
        reader.at = workerEnd;
      } else if (tag === tokenTag) {
        tokenEnd = reader.contentEnd(end);
        tokenAt = reader.at;
        reader.at = tokenEnd;
      } else if (tag === progressTag) {
        progress = reader.double(end);
      } else if (tag === messageTag) {
        messageEnd = reader.contentEnd(end);
        messageAt = reader.at;
        reader.at = messageEnd;
      } else {
        reader.skip(tag, end);
      }
    }
    const weight = weightOf(end - start);
    const kind = uuidKind(reader.bytes, leaseAt, leaseEnd);
    const named = nameOf(kind, reader, leaseAt, leaseEnd);
    const workerId =
      workerAt === workerEnd && this.#workerId !== undefined
        ? this.#workerId
        : this.worker.read(reader, workerAt, workerEnd);
    const token = tokenEnd < 0 ? null : reader.text(tokenAt, tokenEnd);
    const message = messageEnd < 0 ? null : reader.text(messageAt, messageEnd);
    const problem =
      kind === 0
        ? leaseNotFound(named)
        : typeof workerId !== 'string'
          ? workerId
          : problemOf(token, progress, message);
    slice.weight += weight;
    if (problem || typeof workerId !== 'string') {
      slice.refused.push({ named, weight });
      slice.refusals.push(lost(problem as DomainError));
      return;
    }
    const leaseId = leaseIdOf(kind, named);
    slice.heartbeats.push({
      leaseId,
      workerId,
      holder: null,
      token: token === null ? null : token.toLowerCase(),
      jobId: null,
      progress,
      message,
      named,
      weight,
    });
  }

  #readOwner(end: number, slice: FrameSlice): void {
    const { reader } = this;
    const start = reader.at;
    let nameAt = 0;
    let nameEnd = 0;
    while (reader.at < end) {
      const tag = reader.tag(end);
      if (tag !== ownerIdTag) {
        reader.skip(tag, end);
        continue;
      }
      nameEnd = reader.contentEnd(end);
      nameAt = reader.at;
      reader.at = nameEnd;
    }
    const weight = weightOf(end - start);
    const ownerId = reader.text(nameAt, nameEnd);
    const problem = attempt(() => checkName(ownerId, 'owner_id'));
    slice.weight += weight;
    if (problem) {
      slice.refusedOwners.push({ named: cut(ownerId), weight });
      slice.ownerRefusals.push(lost(problem));
    } else slice.owners.push({ ownerId, holder: null, named: ownerId, weight });
  }
}

/** One StreamHeartbeatsRequest. */
export class HeartbeatFrame extends SlicedFrame<FrameSlice> {
  protected override newSlice(): FrameSlice {
    return emptySlice();
  }

  protected override readOther(tag: number, end: number): void {
    this.reader.skip(tag, end);
  }
}

function problemOf(
  token: string | null,
  progress: number | null,
  message: string | null,
): DomainError | undefined {
  if (token === null && progress === null && message === null) return undefined;
  return attempt(() => {
    if (token !== null) checkToken(token);
    if (progress !== null && !(progress >= 0 && progress <= 1))
      throw invalid('progress', `must be from 0 to 1, not ${progress}`);
    if (message !== null) {
      if (message.length > limits.noteChars)
        throw invalid('message', `must not be longer than ${limits.noteChars} characters`);
      checkText(message, 'message');
    }
  });
}

const lost = ({ code, detail }: DomainError): Lost => ({ kind: 'lost', code, detail });
