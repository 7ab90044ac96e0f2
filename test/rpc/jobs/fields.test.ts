/**
 * The guarantee: a field of the proto Job is a field everywhere. Each test names the field that one place
 * lacks.
 */
import { fromBinary, toJson } from '@bufbuild/protobuf';
import { reflect } from '@bufbuild/protobuf/reflect';
import { expect } from 'chai';
import fc from 'fast-check';
import {
  JobSchema,
  SubmitJobRequestSchema,
  SubmitJobResponseSchema,
} from '../../../gen/leasehold/v1/jobs_pb.js';
import { jobsCommand } from '../../../src/cli/commands/jobs.ts';
import { submitVerb } from '../../../src/cli/commands/jobs-submit.ts';
import type { Job } from '../../../src/domain/jobs/job.ts';
import { jobFieldList, submittedFieldList } from '../../../src/domain/jobs/job-fields.ts';
import { jobIntent } from '../../../src/rest/jobs/schemas.ts';
import { submitJobResponse } from '../../../src/rpc/jobs/encode.ts';
import { anyJob } from '../../support/any-job.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { newAddon } from '../../support/jobs-api.ts';
import { runCommand } from '../../support/process.ts';
import { startTestServer } from '../../support/server.ts';

const protoNames = JobSchema.fields.map(({ name }) => name);

/** A job of which no value is absent, empty or zero. */
const [fullJob] = fc.sample(
  anyJob.filter((job) => Object.values(job).every((value) => !isEmpty(value))),
  1,
) as [Job];

function isEmpty(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.keys(value).length === 0;
  return !value;
}

describe('the fields of a job', () => {
  it('has the same fields in the proto and in the table', () => {
    expect(jobFieldList.map(({ name }) => name)).to.have.members(protoNames);
  });

  it('takes the same fields of a submission in the proto and in the table', () => {
    const names = SubmitJobRequestSchema.fields.map(({ name }) => name);
    // REST has another route for each way to treat a duplicate.
    expect([...submittedFieldList.map(({ name }) => name), 'on_duplicate']).to.have.members(names);
  });

  it('encodes every field', () => {
    const { job } = fromBinary(SubmitJobResponseSchema, submitJobResponse(fullJob, false).bytes);
    if (!job) return expect.fail('no job was encoded');
    const missing = JobSchema.fields.filter((field) => !reflect(JobSchema, job).isSet(field));
    expect(missing.map(({ name }) => name)).to.deep.equal([]);
  });

  it('shows every field over REST, with the value that gRPC shows', () => {
    const shown = jobIntent(fullJob);
    expect(shown).to.have.all.keys(protoNames);
    const { job } = fromBinary(SubmitJobResponseSchema, submitJobResponse(fullJob, false).bytes);
    if (!job) return expect.fail('no job was encoded');
    const json = toJson(JobSchema, job, { useProtoFieldName: true }) as Record<string, unknown>;
    for (const { name, kind } of jobFieldList) {
      if (kind === 'time' || kind === 'state' || kind === 'priority') continue;
      expect(shown[name], name).to.deep.equal(json[name]);
    }
  });

  it('has a flag of jobs submit for every field of a submission', () => {
    const flags = Object.keys(submitVerb.flags);
    expect(flags).to.include.members(submittedFieldList.map(({ name }) => name.replaceAll('_', '-')));
    for (const flag of flags) expect(jobsCommand.help(), flag).to.include(`--${flag}`);
  });

  onEveryEngine((engine) => {
    it('keeps every submitted field, and shows every field in --json', async () => {
      await using server = await startTestServer(engine);
      const values: Record<string, string> = {
        'addon-id': newAddon(),
        'cost-units': '3',
        priority: 'high',
        constraints: '{"gpu_required":true}',
        payload: '{"a":1}',
        'run-at': '2099-01-01T00:00:00.000Z',
        tags: 'x,y',
      };
      const flags = submittedFieldList.flatMap(({ name, kind }) => {
        const flag = name.replaceAll('_', '-');
        if (kind === 'flag') return [`--${flag}`];
        return [`--${flag}`, values[flag] ?? (kind === 'whole' ? '7' : `some ${flag}`)];
      });
      const run = async (...args: string[]) =>
        JSON.parse((await runCommand(['jobs', ...args, '--url', server.http, '--json'])).stdout);
      const { job } = await run('submit', ...flags);
      expect(job).to.have.all.keys(protoNames);
      for (const { name, kind } of submittedFieldList) {
        expect(isEmpty(job[name]), name).to.equal(false);
        if (kind === 'whole' && name !== 'cost_units') expect(job[name], name).to.equal(7);
      }
      // The first answer comes from the submission, the second one from the database.
      expect((await run('get', job.job_id)).job).to.deep.equal(job);
    });
  });
});
