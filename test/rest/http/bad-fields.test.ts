import { expect } from 'chai';
import { expectRefusal, expectUnharmed, postAs } from '../../support/bad-requests.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { claimedJob, get, jobsPath, newAddon, submit } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import {
  flag,
  fraction,
  key,
  long,
  name,
  names,
  object,
  text,
  time,
  whole,
  word,
} from '../../support/wrong-values.ts';

const wrong: Record<string, Record<string, string[]>> = {
  submit: {
    addon_id: [...name, 'null'],
    job_type: [...name, 'null'],
    priority: word,
    cost_units: [...whole(1_000_000_000), '0', '-0', 'null'],
    constraints: object,
    payload: object,
    client_request_id: key,
    stream: name,
    unique: flag,
    tags: [...names, `[${Array(51).fill('"t"').join()}]`, `[${long(101)}]`],
    max_runtime_s: [...whole(2_592_000), '0'],
    max_attempts: [...whole(1_000), '0'],
    retry_backoff_s: whole(600),
    run_at: time,
  },
  claim: {
    worker_id: [...name, 'null'],
    addon_id: name,
    limit: [...whole(1_000), '0'],
    accept_job_types: [...names, '[" "]', `[${Array(501).fill('"t"').join()}]`],
    max_cost_units: whole(1_000_000_000),
    constraints_capabilities: [
      ...object,
      '{"gpu_available":"yes"}',
      '{"gpu_available":null}',
      '{"cpu_heavy":0}',
      JSON.stringify(Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`x${i}_available`, true]))),
    ],
    request_id: key,
  },
  status: {
    state: [...word, '"LEASED"', '"preparing"', 'null'],
    note: text,
    progress: fraction,
    worker_id: name,
  },
  cancel: { reason: text, requested_by: name },
  retry: { reason: text, requested_by: name },
};

onEveryEngine((engine) => {
  describe('fields of the queue contract at and beyond their limits', () => {
    let server: TestServer;
    let bodies: Record<string, { path: string; body: Record<string, unknown> }>;
    before(async () => {
      server = await startTestServer(engine);
      const { job_id } = await claimedJob(server);
      bodies = {
        submit: { path: 'submit', body: { addon_id: newAddon(), job_type: 't', cost_units: 1 } },
        claim: { path: 'claim', body: { addon_id: newAddon(), worker_id: 'w' } },
        status: { path: `${job_id}/status`, body: { state: 'CLAIMED' } },
        cancel: { path: `${(await submit(server, {})).job_id}/cancel`, body: {} },
        retry: { path: `${job_id}/retry`, body: {} },
      };
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    /** The route's valid body, except for one field. */
    const send = (route: string, field: string, value: string) => {
      const { path, body } = bodies[route] as { path: string; body: Record<string, unknown> };
      const { [field]: _, ...rest } = body;
      const text = JSON.stringify({ ...rest, unknown: 0 }).slice(0, -1);
      return postAs(server, `${jobsPath}/${path}`, `${text},${JSON.stringify(field)}:${value}}`);
    };

    for (const [route, fields] of Object.entries(wrong)) {
      for (const [field, values] of Object.entries(fields)) {
        it(`refuses an invalid value by the name of its field: ${field} of ${route}`, async () => {
          for (const value of values) {
            const answer = await send(route, field, value);
            try {
              expectRefusal(answer, 400, 'invalid_request', field);
            } catch (error) {
              (error as Error).message = `${value.slice(0, 60)}: ${(error as Error).message}`;
              throw error;
            }
          }
        });
      }
    }

    const right: [string, string, string][] = [
      ['submit', 'retry_backoff_s', '-0'],
      ['submit', 'cost_units', '1000000000'],
      ['submit', 'cost_units', '1.0'],
      ['submit', 'cost_units', '3e1'],
      ['submit', 'addon_id', long(200)],
      ['submit', 'client_request_id', JSON.stringify('𝒳'.repeat(200))],
      ['submit', 'tags', `[${Array(50).fill(long(100)).join()}]`],
      ['submit', 'run_at', '"2025-12-28T20:15:00.123456789Z"'],
      ['claim', 'max_cost_units', '-0'],
      ['claim', 'limit', '1000'],
      ['claim', 'accept_job_types', `[${Array(500).fill(long(200)).join()}]`],
      ['status', 'progress', '-0'],
      ['status', 'progress', '1'],
      ['status', 'note', long(2_000)],
    ];
    for (const [route, field, value] of right) {
      it(`accepts a value at the limit: ${field} of ${route} with ${value.slice(0, 40)}`, async () => {
        expect((await send(route, field, value)).status).to.be.oneOf([200, 201, 204]);
      });
    }

    for (const time of ['0000-01-01T00:00:00Z', '0000-12-31T23:59:59Z', '9999-12-31T23:59:59-12:00']) {
      it(`refuses run_at of ${time}, or returns the job unchanged on every read`, async () => {
        const answer = await send('submit', 'run_at', JSON.stringify(time));
        if (answer.status !== 201) return expectRefusal(answer, 400, 'invalid_request', 'run_at');
        const { job } = answer.body;
        expect(job.run_at, 'a time as the contract writes it').to.match(/^\d{4}-/);
        const found = await get(server, `${jobsPath}/${job.job_id}`);
        expect(found.status, found.text).to.equal(200);
        expect(found.body.job).to.deep.equal(job);
      });
    }
  });
});
