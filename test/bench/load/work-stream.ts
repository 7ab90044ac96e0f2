/** A worker process on a stream of work, which does nothing with its jobs but hand them in. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { FinalStatus } from '../../../gen/leasehold/v1/jobs_pb.js';
import {
  ReleaseLeaseRequestSchema,
  StreamWorkRequestSchema,
  StreamWorkResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { WireReader } from '../../../src/rpc/wire-reader.ts';
import { latencyOf } from '../stats.ts';
import type { Round } from './drive.ts';
import { headroomBytes, type Link, type MessageStream, withHeadroom } from './link.ts';

const path = '/leasehold.v1.LeasesService/StreamWork';

export interface WorkRound extends Round {
  /** Jobs that were granted more than once. */
  duplicates: number;
}

const delimited = (number: number) => number * 8 + 2;
const grantsTag = delimited(3);
const releasesTag = delimited(4);
const leaseTag = delimited(1);
const leaseIdTag = delimited(1);
const jobIdTag = delimited(2);
const tokenTag = delimited(15);
const endedTag = delimited(2);

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

export interface Drain {
  streams: number;
  /** Of each stream. */
  credit: number;
  jobs: number;
}

/** Streams that drain the queue together, each with so much credit, until so many jobs are done. */
export async function drainStreams(
  links: readonly Link[],
  { streams, credit, jobs }: Drain,
): Promise<WorkRound> {
  const seen = new Set<string>();
  const sentAt: number[][] = Array.from({ length: streams }, () => []);
  const latenciesMs: number[] = [];
  const cpuBefore = process.cpuUsage();
  const began = performance.now();
  let [duplicates, done] = [0, 0];
  await new Promise<void>((resolve, reject) => {
    const open = (number: number) => {
      const stream: MessageStream = (links[number % links.length] as Link).open(path, {
        message: (bytes) => {
          try {
            const { grants, ended } = readFrame(bytes, (jobId) => {
              if (seen.has(jobId)) duplicates++;
              seen.add(jobId);
            });
            if (grants.length > 0) {
              stream.send(handIn(bytes, grants));
              sentAt[number]?.push(performance.now());
            }
            if (ended > 0) latenciesMs.push(performance.now() - (sentAt[number]?.shift() ?? began));
            done += ended;
            if (done >= jobs) resolve();
          } catch (error) {
            reject(error as Error);
          }
        },
        ended: reject,
      });
      const first = create(StreamWorkRequestSchema, {
        workerId: `worker-${number}`,
        credits: [{ jobs: credit }],
      });
      stream.send(withHeadroom(toBinary(StreamWorkRequestSchema, first)));
    };
    for (let number = 0; number < streams; number++) open(number);
  });
  const elapsedMs = performance.now() - began;
  const cpu = process.cpuUsage(cpuBefore);
  return {
    done,
    elapsedMs,
    loadCpuMs: (cpu.user + cpu.system) / 1000,
    latency: latencyOf(latenciesMs),
    duplicates,
  };
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

/** Hands in what was granted, and asks for as many again. */
function handIn(bytes: Buffer, grants: readonly Granted[]): Buffer {
  const credits = Buffer.from(
    toBinary(
      StreamWorkRequestSchema,
      create(StreamWorkRequestSchema, { credits: [{ jobs: grants.length }] }),
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
