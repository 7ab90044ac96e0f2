/** A worker process on a stream of work, which does nothing with its jobs but hand them in. */
import { setTimeout as delay } from 'node:timers/promises';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { FinalStatus } from '../../../gen/leasehold/v1/jobs_pb.js';
import {
  ReleaseLeaseRequestSchema,
  StreamWorkRequestSchema,
  StreamWorkResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { WireReader } from '../../../src/rpc/wire/reader.ts';
import { headroomBytes, type Link, type MessageStream, withHeadroom } from './link.ts';

const path = '/leasehold.v1.LeasesService/StreamWork';

const delimited = (number: number) => number * 8 + 2;
const grantsTag = delimited(3);
const releasesTag = delimited(4);
const leaseTag = delimited(1);
const leaseIdTag = delimited(1);
const jobIdTag = delimited(2);
const tokenTag = delimited(15);
const endedTag = delimited(2);

/** So long after its credit was taken back, nothing more comes. */
const quietMs = 300;
const leaveMaxMs = 10_000;

/** What is the same in everything that is handed in: written once, and only ids and tokens are changed. */
const sample = '00000000-0000-4000-8000-000000000000';
const template = Buffer.from(
  toBinary(
    ReleaseLeaseRequestSchema,
    create(ReleaseLeaseRequestSchema, {
      leaseId: sample,
      leaseToken: sample,
      status: FinalStatus.SUCCEEDED,
    }),
  ),
);
const leaseIdAt = template.indexOf(sample);
const tokenAt = template.indexOf(sample, leaseIdAt + sample.length);
const releaseBytes = template.length + 2;

/** Where the id and the token of a granted lease lie in a frame. */
interface Granted {
  leaseIdAt: number;
  tokenAt: number;
}

export interface Hiring {
  /** The queue of this name; the empty one stands for jobs without one. */
  stream: string;
  streams: number;
  /** Of each stream. */
  credit: number;
}

/** Workers on streams, from their construction on: whatever they are granted they hand in at once, and have credit again. */
export class Hands {
  done = 0;
  /** Jobs that were granted more than once. */
  duplicates = 0;
  /** From handing in to the answer. */
  readonly latenciesMs: number[] = [];
  /** Rejects when a stream ends, or something was not taken. */
  readonly failed: Promise<never>;
  readonly #seen: Set<string>;
  readonly #streams: MessageStream[] = [];
  #kind: { streams?: string[] } = {};
  #granted = 0;
  #grantedAt = 0;
  #leaving = false;
  #fail: (error: Error) => void = () => {};
  #wake = () => {};

  constructor(links: readonly Link[], { stream, streams, credit }: Hiring, seen: Set<string>) {
    this.#seen = seen;
    this.failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    // Whoever hires them waits for that later.
    this.failed.catch(() => {});
    const kind = stream === '' ? {} : { streams: [stream] };
    this.#kind = kind;
    for (let number = 0; number < streams; number++) this.#open(links, number, credit, kind);
  }

  /** Settles when so many jobs are done. */
  async until(jobs: number): Promise<void> {
    while (this.done < jobs) {
      const more = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      await Promise.race([more, this.failed]);
    }
  }

  /**
   * Takes its credit back and hands in what still comes. What a worker has in its hands when it goes away comes back and is
   * granted again, and it would look as if the same job had been handed out twice.
   */
  async leave(): Promise<void> {
    this.#leaving = true;
    const back = create(StreamWorkRequestSchema, { credits: [{ jobs: 0, ...this.#kind }] });
    const bytes = toBinary(StreamWorkRequestSchema, back);
    for (const stream of this.#streams) stream.send(withHeadroom(bytes));
    const since = performance.now();
    const isQuiet = () =>
      this.#granted === this.done && performance.now() - Math.max(this.#grantedAt, since) > quietMs;
    while (!isQuiet() && performance.now() - since < leaveMaxMs) await delay(quietMs / 10);
  }

  #open(links: readonly Link[], number: number, credit: number, kind: { streams?: string[] }): void {
    const sentAt: number[] = [];
    const onJob = (jobId: string) => {
      if (this.#seen.has(jobId)) this.duplicates++;
      this.#seen.add(jobId);
    };
    const stream: MessageStream = (links[number % links.length] as Link).open(path, {
      message: (bytes) => {
        try {
          const { grants, ended } = readFrame(bytes, onJob);
          if (grants.length > 0) {
            this.#granted += grants.length;
            this.#grantedAt = performance.now();
            stream.send(handIn(bytes, grants, this.#leaving ? undefined : kind));
            sentAt.push(performance.now());
          }
          if (ended === 0) return;
          const since = sentAt.shift();
          if (since !== undefined) this.latenciesMs.push(performance.now() - since);
          this.done += ended;
          this.#wake();
        } catch (error) {
          this.#fail(error as Error);
        }
      },
      ended: this.#fail,
    });
    const first = create(StreamWorkRequestSchema, {
      workerId: `worker-${number}`,
      credits: [{ jobs: credit, ...kind }],
    });
    stream.send(withHeadroom(toBinary(StreamWorkRequestSchema, first)));
    this.#streams.push(stream);
  }
}

/** What a frame grants, and how many jobs it says were taken back. Throws where one was not. */
function readFrame(bytes: Buffer, onJob: (jobId: string) => void): { grants: Granted[]; ended: number } {
  const reader = new WireReader(bytes);
  const grants: Granted[] = [];
  let ended = 0;
  while (reader.at < bytes.length) {
    const tag = reader.tag(bytes.length);
    if (tag === grantsTag) grants.push(readGrant(reader, reader.contentEnd(bytes.length), onJob));
    else if (tag === releasesTag) {
      const end = reader.contentEnd(bytes.length);
      if (!hasEnded(reader, end)) throw new Error(refusal(bytes));
      ended++;
    } else reader.skip(tag, bytes.length);
  }
  return { grants, ended };
}

function readGrant(reader: WireReader, end: number, onJob: (jobId: string) => void): Granted {
  const granted = { leaseIdAt: -1, tokenAt: -1 };
  while (reader.at < end) {
    const tag = reader.tag(end);
    if (tag !== leaseTag) {
      reader.skip(tag, end);
      continue;
    }
    const leaseEnd = reader.contentEnd(end);
    while (reader.at < leaseEnd) {
      const inner = reader.tag(leaseEnd);
      if (inner === leaseIdTag || inner === tokenTag || inner === jobIdTag) {
        const contentEnd = reader.contentEnd(leaseEnd);
        if (inner === leaseIdTag) granted.leaseIdAt = reader.at;
        else if (inner === tokenTag) granted.tokenAt = reader.at;
        else onJob(reader.text(reader.at, contentEnd));
        reader.at = contentEnd;
      } else reader.skip(inner, leaseEnd);
    }
  }
  return granted;
}

function hasEnded(reader: WireReader, end: number): boolean {
  let found = false;
  while (reader.at < end) {
    const tag = reader.tag(end);
    found ||= tag === endedTag;
    reader.skip(tag, end);
  }
  return found;
}

const refusal = (bytes: Buffer): string => {
  const { releases } = fromBinary(StreamWorkResponseSchema, bytes);
  const first = releases.find(({ outcome }) => outcome.case !== 'ended');
  return first?.outcome.case === 'refused' ? `${first.outcome.value.detail}` : 'not an answer';
};

/** Hands in what was granted, and asks for as many again of a kind. */
function handIn(bytes: Buffer, grants: readonly Granted[], kind: { streams?: string[] } | undefined): Buffer {
  const credits = Buffer.from(
    toBinary(
      StreamWorkRequestSchema,
      create(StreamWorkRequestSchema, { credits: kind ? [{ jobs: grants.length, ...kind }] : [] }),
    ),
  );
  const message = withHeadroom(Buffer.allocUnsafe(grants.length * releaseBytes + credits.length));
  let at = headroomBytes;
  for (const granted of grants) {
    message[at++] = releasesTag;
    message[at++] = template.length;
    template.copy(message, at);
    bytes.copy(message, at + leaseIdAt, granted.leaseIdAt, granted.leaseIdAt + sample.length);
    bytes.copy(message, at + tokenAt, granted.tokenAt, granted.tokenAt + sample.length);
    at += template.length;
  }
  credits.copy(message, at);
  return message;
}
