/**
 * Requests, encoded once and sent many times. The load shares its processor with the server it measures, so it must
 * not spend on encoding what in real life is spread over many clients. No request has a `client_request_id`, so the
 * same bytes may be sent again and again.
 */
import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import {
  ClaimJobsRequestSchema,
  SubmitJobRequestSchema,
  SubmitJobsRequestSchema,
  SubmitJobsResponseSchema,
} from '../../../gen/leasehold/v1/jobs_pb.js';

const path = (method: string) => `/leasehold.v1.JobsService/${method}`;

export const paths = {
  submitJob: path('SubmitJob'),
  submitJobs: path('SubmitJobs'),
  claimJobs: path('ClaimJobs'),
};

/** A job such as people submit: a few words of payload and a tag. */
export const job = {
  addonId: 'bench',
  jobType: 'bench.work',
  costUnits: 1,
  payload: { source: 'inbox/0001.pdf', pages: 12, notify: true },
  tags: ['bench'],
};

const encode = <Desc extends DescMessage>(schema: Desc, message: MessageInitShape<Desc>): Buffer =>
  Buffer.from(toBinary(schema, create(schema, message)));

export const submitJob = (stream?: string): Buffer =>
  encode(SubmitJobRequestSchema, stream === undefined ? job : { ...job, stream });

export const submitJobs = (jobs: number, stream?: string): Buffer =>
  encode(SubmitJobsRequestSchema, {
    jobs: Array.from({ length: jobs }, () => (stream === undefined ? job : { ...job, stream })),
  });

export const claimJob = (workerId: string): Buffer => encode(ClaimJobsRequestSchema, { workerId, limit: 1 });

/** Throws where the answer to a batch holds anything but jobs that were taken. */
export function checkSubmitted(answer: Uint8Array, jobs: number): void {
  const { outcomes } = fromBinary(SubmitJobsResponseSchema, answer);
  const refused = outcomes.find(({ outcome }) => outcome.case !== 'submitted');
  if (refused) throw new Error(`a job of a batch was refused: ${JSON.stringify(refused.outcome.value)}`);
  if (outcomes.length !== jobs) throw new Error(`${jobs} jobs submitted, ${outcomes.length} outcomes`);
}

const uuidChars = 36;

/**
 * The id of the one job in an answer to ClaimJobs, undefined where it is empty. Read off its place in the bytes: the
 * first field of the answer is the job, whose first field is its id. Decoding the rest would cost the load more than
 * claiming costs the server.
 */
export function claimedJobId(answer: Buffer): string | undefined {
  if (answer.length === 0) return undefined;
  const stringField = (1 << 3) | 2;
  let at = 1;
  while ((answer[at++] as number) >= 0x80);
  if (answer[0] !== stringField || answer[at] !== stringField || answer[at + 1] !== uuidChars) {
    throw new Error('an answer to ClaimJobs does not begin with a job and its id');
  }
  return answer.toString('latin1', at + 2, at + 2 + uuidChars);
}
