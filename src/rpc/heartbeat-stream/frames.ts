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
import { DomainError, invalid, leaseNotFound } from '../../domain/errors.ts';
import type { Heartbeat, Lost } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { checkText } from '../../domain/requests/json-check.ts';
import { tagOf } from '../wire/fields.ts';
import { checkName, checkToken, cut, leaseIdOf, nameOf, uuidKind, weightOf } from '../wire/frame-fields.ts';
import { WireError, WireReader } from '../wire/reader.ts';

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
export interface NamedOwner extends Named {
  readonly ownerId: string;
}

/** A part of a frame: the heartbeats to process, and the invalid ones, each with its verdict. */
export interface FrameSlice {
  heartbeats: NamedHeartbeat[];
  refused: Named[];
  refusals: Lost[];
  owners: NamedOwner[];
  refusedOwners: Named[];
  ownerRefusals: Lost[];
  weight: number;
}

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
 * Remembers the last worker's name, because most streams have one worker, which repeats it in every
 * heartbeat.
 */
export class WorkerName {
  #bytes = new Uint8Array(0);
  #name = '';
  #problem: DomainError | undefined = attempt(() => checkName('', 'worker_id'));

  /** The name from `start` to `end`, checked, or the reason why it is invalid. */
  read(reader: WireReader, start: number, end: number): string | DomainError {
    if (this.#isSame(reader.bytes, start, end)) return this.#problem ?? this.#name;
    const name = reader.text(start, end);
    const problem = attempt(() => checkName(name, 'worker_id'));
    // A text that is too long for a name is not kept in memory.
    if (end - start <= limits.nameChars) {
      this.#bytes = Uint8Array.from(reader.bytes.subarray(start, end));
      this.#name = name;
      this.#problem = problem;
    }
    return problem ?? name;
  }

  #isSame(bytes: Uint8Array, start: number, end: number): boolean {
    const known = this.#bytes;
    if (known.length !== end - start) return false;
    for (let i = 0; i < known.length; i++) if (known[i] !== bytes[start + i]) return false;
    return true;
  }
}

/** One StreamHeartbeatsRequest, read in slices. */
export class HeartbeatFrame {
  readonly #reader: WireReader;
  readonly #worker: WorkerName;
  readonly #workerId: string | undefined;
  #read = 0;
  #readOwners = 0;

  /** `workerId` is the worker of heartbeats that contain no worker id. */
  constructor(bytes: Buffer, worker: WorkerName, workerId?: string) {
    this.#reader = new WireReader(bytes);
    this.#worker = worker;
    this.#workerId = workerId;
  }

  /** The whole frame has been read. */
  get done(): boolean {
    return this.#reader.at >= this.#reader.bytes.length;
  }

  /** How many heartbeats have been read. */
  get heartbeats(): number {
    return this.#read;
  }

  /** How many owners have been read. */
  get owners(): number {
    return this.#readOwners;
  }

  /** Reads the next heartbeats, up to a weight. Throws `invalid_request` if the frame cannot be read. */
  next(weightMax: number): FrameSlice {
    const reader = this.#reader;
    const end = reader.bytes.length;
    const piece: FrameSlice = {
      heartbeats: [],
      refused: [],
      refusals: [],
      owners: [],
      refusedOwners: [],
      ownerRefusals: [],
      weight: 0,
    };
    let tag = 0;
    try {
      while (reader.at < end && piece.weight < weightMax) {
        tag = reader.tag(end);
        if (tag === heartbeatsTag) {
          this.#heartbeat(reader.contentEnd(end), piece);
          this.#read++;
        } else if (tag === ownersTag) {
          this.#owner(reader.contentEnd(end), piece);
          this.#readOwners++;
        } else reader.skip(tag, end);
      }
      return piece;
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      const field = tag === ownersTag ? `owners[${this.#readOwners}]` : `heartbeats[${this.#read}]`;
      throw invalid(field, `cannot be read: the frame ${error.message}`);
    }
  }

  #heartbeat(end: number, piece: FrameSlice): void {
    const reader = this.#reader;
    const start = reader.at;
    let leaseAt = 0;
    let leaseEnd = 0;
    let workerAt = 0;
    let workerEnd = 0;
    let tokenAt = 0;
    let tokenEnd = -1;
    let messageAt = 0;
    let messageEnd = -1;
    let progress: number | undefined;
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
        : this.#worker.read(reader, workerAt, workerEnd);
    const token = tokenEnd < 0 ? undefined : reader.text(tokenAt, tokenEnd);
    const message = messageEnd < 0 ? undefined : reader.text(messageAt, messageEnd);
    const problem =
      kind === 0
        ? leaseNotFound(named)
        : typeof workerId !== 'string'
          ? workerId
          : problemOf(token, progress, message);
    piece.weight += weight;
    if (problem || typeof workerId !== 'string') {
      piece.refused.push({ named, weight });
      piece.refusals.push(lost(problem as DomainError));
      return;
    }
    const leaseId = leaseIdOf(kind, named);
    piece.heartbeats.push({ leaseId, workerId, token, jobId: undefined, progress, message, named, weight });
  }

  #owner(end: number, piece: FrameSlice): void {
    const reader = this.#reader;
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
    piece.weight += weight;
    if (problem) {
      piece.refusedOwners.push({ named: cut(ownerId), weight });
      piece.ownerRefusals.push(lost(problem));
    } else piece.owners.push({ ownerId, named: ownerId, weight });
  }
}

function problemOf(
  token: string | undefined,
  progress: number | undefined,
  message: string | undefined,
): DomainError | undefined {
  if (token === undefined && progress === undefined && message === undefined) return undefined;
  return attempt(() => {
    if (token !== undefined) checkToken(token);
    if (progress !== undefined && !(progress >= 0 && progress <= 1))
      throw invalid('progress', `must be from 0 to 1, not ${progress}`);
    if (message !== undefined) {
      if (message.length > limits.noteChars)
        throw invalid('message', `must not be longer than ${limits.noteChars} characters`);
      checkText(message, 'message');
    }
  });
}

function attempt(check: () => void): DomainError | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
}

const lost = ({ code, detail }: DomainError): Lost => ({ kind: 'lost', code, detail });
