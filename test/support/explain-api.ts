/** How tests read explanations, make claims and leases older, and note the causes that they assert. */
import { expect } from 'chai';
import { type CauseCode, causeCodes } from '../../src/domain/explain/facts.ts';
import { type Body, get } from './jobs-api.ts';
import { eventually, type TestServer } from './server.ts';
import { claimedFrom } from './worker-api.ts';

/** The causes that the tests of waiting jobs assert; those of leased and ended jobs assert all others. */
export const waitingCauses: readonly CauseCode[] = [
  'waiting_for_worker',
  'waiting_in_line',
  'waiting_for_units',
  'costs_more_than_total',
  'backoff',
  'run_at',
  'needs_capability',
  'needs_stream_worker',
  'unique',
  'claimed',
  'failed_retryably',
];

/** The settings of a server whose explanations are tested. */
export const explainSettings = { capacityTotal: 1_000, maxClaims: 1, claimTtlS: 600 };

/** `server` is called late, because a suite starts its server after its tests are defined. */
export function explainApi(server: () => TestServer) {
  const asserted = new Set<string>();
  const explainJob = async (jobId: string): Promise<Body> => {
    const { status, text, body } = await get(server(), `/api/scheduler/jobs/${jobId}/explain`);
    expect(status, text).to.equal(200);
    expect(text).not.to.match(/token/);
    return body;
  };
  const explainLease = async (leaseId: string): Promise<Body> => {
    const { status, text, body } = await get(server(), `/api/scheduler/lease/${leaseId}/explain`);
    expect(status, text).to.equal(200);
    expect(text).not.to.match(/token/);
    return body;
  };
  const codesOf = ({ causes }: Body): string[] => {
    for (const { code, text } of causes) {
      expect(causeCodes).to.include(code);
      expect(text)
        .to.be.a('string')
        .and.not.to.match(/undefined|null|NaN|Invalid/);
      asserted.add(code);
    }
    // A pause of several seconds in the test process counts as an outage. Only one test is about outages.
    return causes.map(({ code }: Body) => code).filter((code: string) => code !== 'server_away');
  };
  const causeOf = ({ causes }: Body, code: string): Body => {
    const found = causes.find((cause: Body) => cause.code === code);
    return found ?? expect.fail(`no ${code} among ${causes.map((cause: Body) => cause.code)}`);
  };
  const storyOf = ({ steps }: Body): string[] =>
    steps.map(({ type, kind }: Body) => type ?? kind).filter((word: string) => word !== 'OUTAGE');

  /** Makes a job's claim or lease older by the given time. */
  const age = (jobId: string, ms: number) =>
    server().database.query(
      `update live_jobs set ${[
        'check_at',
        'claim_expires_at',
        'started_at',
        'last_heartbeat_at',
        'expires_at',
        'lease_ends_at',
        'longest_silence_since',
      ]
        .map((column) => `${column} = ${column} - $2::float8 * interval '1 ms'`)
        .join(', ')} where job_id = $1`,
      [jobId, ms],
    );
  const stateOf = async (jobId: string) =>
    (await get(server(), `/api/scheduler/jobs/${jobId}`)).body.job.state;
  const becomes = (jobId: string, state: string) =>
    eventually(`${jobId} is ${state}`, async () => ((await stateOf(jobId)) === state ? true : undefined));
  const acquire = async (stream: string, workerId = 'worker-1') =>
    claimedFrom(server(), [stream], { worker_id: workerId });
  return { asserted, explainJob, explainLease, codesOf, causeOf, storyOf, age, stateOf, becomes, acquire };
}
