import { expectRefusal, expectUnharmed, postAs } from '../../support/bad-requests.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { claimedJob, newAddon } from '../../support/jobs-api.ts';
import { leasedJob, leasePath, plenty } from '../../support/leases-api.ts';
import type { TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';
import { systemPath } from '../../support/system-api.ts';
import {
  flag,
  fraction,
  key,
  long,
  name,
  names,
  notText,
  object,
  text,
  time,
  whole,
  word,
} from '../../support/wrong-values.ts';

/** Invalid values as JSON text, because no JSON writer produces some of them. */
const token = [...notText, long(201)];
const error = [
  '0',
  'true',
  '[]',
  '["text"]',
  '{"message":1}',
  '{"code":[]}',
  '{"stack":{}}',
  '{"retryable":"yes"}',
];
const nul = ['"a\\u0000b"', '{"deep":["a\\u0000b"]}', '"\\ud800"'];
const capabilities = [...object, '{"gpu_available":"yes"}', '{"gpu_available":null}', '{"cpu_heavy":0}'];
const types = [...names, '[" "]', `[${Array(501).fill('"t"').join()}]`];
const owner = { worker_id: [...name, ...nul, 'null'], lease_token: token, job_id: notText };

const wrong: Record<string, Record<string, string[]>> = {
  request: {
    job_id: [...notText, 'null'],
    addon_id: name,
    worker_id: name,
    ttl_sec: [...whole(3_600), '0'],
    request_id: key,
  },
  heartbeat: { ...owner, progress: fraction, message: text },
  release: {
    ...owner,
    status: [...word, '"DONE"', '"succeeded"', 'null'],
    result_data: nul,
    error: [...error, ...nul],
    metrics: [...object, '{"ms":"a\\u0000b"}', '{"ms":1e400}'],
  },
  'system request': {
    worker_id: [...name, ...nul, 'null'],
    max_units: [...whole(1_000_000_000), '0'],
    constraints_capabilities: capabilities,
    addon_id: name,
    accept_job_types: types,
    wait_ms: whole(60_000),
    request_id: key,
  },
  'system heartbeat': { ...owner, progress: fraction, message: text },
  'system complete': { ...owner, result: nul, metrics: object },
  'system fail': { ...owner, error: [...error, ...nul], metrics: object },
  'system jobs': {
    type: [...name, 'null'],
    requested_units: [...whole(1_000_000_000), '0', 'null'],
    priority: [...word.filter((each) => each !== '"normal"'), '"NORMAL"'],
    idempotency_key: key,
    addon_id: name,
    constraints: [...object, '{"gpu_required":"yes"}'],
    payload: [...object, '{"deep":["a\\u0000b"]}'],
    stream: name,
    unique: flag,
    tags: [...names, `[${Array(51).fill('"t"').join()}]`],
    max_runtime_s: [...whole(2_592_000), '0'],
    max_attempts: [...whole(1_000), '0'],
    retry_backoff_s: whole(600),
    run_at: [...time, '"0000-01-01T00:00:00Z"'],
  },
};

onEveryEngine((engine) => {
  // The server refuses all of these before it uses the database.
  if (engine.name !== 'embedded') return;

  describe('the fields of a lease request', () => {
    const share = shareServer(engine, { capacityTotal: plenty });
    let server: TestServer;
    let routes: Record<string, { path: string; body: Record<string, unknown> }>;
    before(async () => {
      server = await share.start();
      const { job_id } = await claimedJob(server);
      const { lease } = await leasedJob(server);
      const [queue, system] = [leasePath, `${systemPath}/leases`].map((path) => `${path}/${lease.lease_id}`);
      const worker = { worker_id: 'worker-1' };
      routes = {
        request: { path: `${leasePath}/request`, body: { job_id } },
        heartbeat: { path: `${queue}/heartbeat`, body: worker },
        release: { path: `${queue}/release`, body: { ...worker, status: 'SUCCEEDED' } },
        'system request': { path: `${systemPath}/leases/request`, body: { ...worker, addon_id: newAddon() } },
        'system heartbeat': { path: `${system}/heartbeat`, body: worker },
        'system complete': { path: `${system}/complete`, body: worker },
        'system fail': { path: `${system}/fail`, body: worker },
        'system jobs': { path: `${systemPath}/jobs`, body: { type: 't', requested_units: 1 } },
      };
    });
    after(async () => {
      await expectUnharmed(server);
      await share.leave();
    });

    for (const [route, fields] of Object.entries(wrong)) {
      for (const [field, values] of Object.entries(fields)) {
        it(`refuses an invalid value by the name of its field: ${field} of ${route}`, async () => {
          const { path, body } = routes[route] as { path: string; body: Record<string, unknown> };
          const { [field]: _, ...rest } = body;
          const good = JSON.stringify({ ...rest, unknown: 0 }).slice(0, -1);
          const send = (value: string) => postAs(server, path, `${good},${JSON.stringify(field)}:${value}}`);
          const answers = await Promise.all(values.map(send));
          for (const [i, answer] of answers.entries()) {
            try {
              expectRefusal(answer, 400, 'invalid_request', field);
            } catch (error) {
              (error as Error).message = `${values[i]?.slice(0, 60)}: ${(error as Error).message}`;
              throw error;
            }
          }
        });
      }
    }
  });
});
