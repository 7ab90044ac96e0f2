import { expect } from 'chai';
import Type from 'typebox';
import type { JsonObject } from '../../../src/domain/jobs/job.ts';
import { optional } from '../../../src/domain/requests/scheduler.ts';
import { nearest, unknownFields } from '../../../src/rest/http/unknown-fields.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { claimedJob, jobsPath, newAddon, post, submit } from '../../support/jobs-api.ts';
import type { TestServer } from '../../support/server.ts';
import { holdSharedServer } from '../../support/shared-server.ts';
import { fail, grantedJob } from '../../support/system-api.ts';

describe('suggestions for unknown fields', () => {
  const known = [
    'payload',
    'max_attempts',
    'run_at',
    'tags',
    'job_type',
    'addon_id',
    'priority',
    'max_runtime_s',
  ];

  it('suggests the field that was mistyped (C21)', () => {
    const typos: Record<string, string | undefined> = {
      payloads: 'payload',
      max_attempt: 'max_attempts',
      maxAttempts: 'max_attempts',
      runAt: 'run_at',
      'run-at': 'run_at',
      tag: 'tags',
      prioritiy: 'priority',
      addonid: 'addon_id',
      jobtypes: 'job_type',
    };
    for (const [typo, field] of Object.entries(typos)) expect(nearest(typo, known), typo).to.equal(field);
  });

  it('suggests no field if none is similar (C21)', () => {
    for (const name of ['color', 'x', '', 'runtime', 'p'.repeat(100_000)]) {
      expect(nearest(name, known), name.slice(0, 20)).to.equal(undefined);
    }
  });
});

describe('warnings about unknown fields', () => {
  const Part = Type.Object({ label: Type.String(), size: optional(Type.Object({ width: Type.Integer() })) });
  const schema = Type.Object({
    parts: optional(Type.Array(Part)),
    open: Type.Union([
      Type.String(),
      Type.Object({ retryable: Type.Boolean() }, { additionalProperties: true }),
    ]),
    payload: Type.Record(Type.String(), Type.Unknown()),
    result: Type.Unknown(),
  });
  const warningsOf = (body: object) => unknownFields(body as JsonObject, schema);

  it('names the path of an unknown field in objects, and in objects of lists', () => {
    const body = { parts: [{ label: 'a' }, { labels: 'b', size: { widths: 1 } }, null, 7] };
    expect(warningsOf(body)).to.deep.equal([
      '"parts[1].labels" is not a field of this request and was ignored; it is close to "parts[1].label"',
      '"parts[1].size.widths" is not a field of this request and was ignored; it is close to "parts[1].size.width"',
    ]);
  });

  it('gives no warning inside objects whose fields are free', () => {
    expect(warningsOf({ payload: { lable: { retriable: 1 } }, result: [{ lable: 1 }] })).to.deep.equal([]);
  });

  it('warns about a further field of an open object only if it resembles a known one', () => {
    expect(warningsOf({ open: { retriable: true, hint: 'restart' } })).to.deep.equal([
      '"open.retriable" is not a field of this request and has no effect; it is close to "open.retryable"',
    ]);
    expect(warningsOf({ open: 'retriable' })).to.deep.equal([]);
  });

  it('gives at most ten warnings, whatever the depth', () => {
    const parts = Array.from({ length: 1_000 }, () => ({ label: 'a', other: 1 }));
    expect(warningsOf({ parts, other: 1 })).to.have.length(10);
  });

  it('compares the first hundred further fields of open objects', () => {
    const further = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`field_${i}`, 0]));
    expect(warningsOf({ open: { ...further(99), retriable: true } })).to.have.length(1);
    expect(warningsOf({ open: { ...further(100), retriable: true } })).to.deep.equal([]);
  });
});

onEveryEngine((engine) => {
  describe('warnings and refusals in answers', () => {
    let server: TestServer;
    holdSharedServer(engine, {}, (shared) => {
      server = shared;
    });

    const job = () => ({ addon_id: newAddon(), job_type: 'load30', cost_units: 1 });

    it('names the unknown fields of a body, and suggests the intended ones (C21)', async () => {
      const body = { ...job(), max_attempt: 3, payloads: {}, whatever: null };
      const answer = await post(server, `${jobsPath}/submit`, body);
      expect(answer.status).to.equal(201);
      expect(answer.body.job.max_attempts).to.equal(1);
      expect(answer.body.warnings).to.deep.equal([
        '"max_attempt" is not a field of this request and was ignored; it is close to "max_attempts"',
        '"payloads" is not a field of this request and was ignored; it is close to "payload"',
        '"whatever" is not a field of this request and was ignored',
      ]);
    });

    it('names unknown fields of an owner, and a mistyped one of an error with its path', async () => {
      const owner = { agnt: 'claude', colour: 'green' };
      const ask = { owner_id: newAddon(), repository: newAddon(), paths: ['a'], owner };
      const acquired = await post(server, '/api/files/acquire', ask);
      expect(acquired.body.outcome, acquired.text).to.equal('granted');
      expect(acquired.body.warnings).to.deep.equal([
        '"owner.agnt" is not a field of this request and was ignored; it is close to "owner.agent"',
        '"owner.colour" is not a field of this request and was ignored',
      ]);

      const { lease } = await grantedJob(server);
      const failed = await fail(server, lease.lease_id, {
        error: { message: 'no', hint: 1, retriable: true },
      });
      expect([failed.status, failed.body.job.state], failed.text).to.deep.equal([200, 'failed']);
      expect(failed.body.warnings).to.deep.equal([
        '"error.retriable" is not a field of this request and has no effect; it is close to "error.retryable"',
      ]);
    });

    it('gives no warning if every field is known, nor for fields of a payload (C21)', async () => {
      const body = { ...job(), payload: { max_attempt: 1 }, client_request_id: null };
      expect((await post(server, `${jobsPath}/submit`, body)).body).to.have.all.keys('job');
    });

    it('gives no warning for fields of the queue contract in a lease request (C21)', async () => {
      const { job_id, addon_id } = await claimedJob(server, { cost_units: 1 });
      const body = {
        job_id,
        addon_id,
        job_type: 'load30',
        cost_units: 9,
        priority: 'LOW',
        constraints: { gpu: 1 },
      };
      const answer = await post(server, '/api/scheduler/lease/request', { ...body, ttl_sec: 30 });
      expect(answer.body.approved, answer.text).to.equal(true);
      expect(answer.body.warnings).to.equal(undefined);
    });

    it('names ten of many unknown fields, and the beginning of a long one (C21)', async () => {
      const unknown = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`unknown_${i}`, 0]));
      const { body } = await post(server, `${jobsPath}/submit`, {
        ['x'.repeat(5_000)]: 1,
        ...job(),
        ...unknown,
      });
      expect(body.warnings).to.have.length(10);
      expect(JSON.stringify(body.warnings).length).to.be.below(2_000);
    });

    for (const [field, key, rule, ask] of [
      ['constraints', 'gpu', '_required or _heavy', `${jobsPath}/submit`],
      ['constraints', '_required', '_required or _heavy, after a name', `${jobsPath}/submit`],
      ['constraints', 'gpu_available', '_required or _heavy', '/api/system/scheduler/jobs'],
      ['constraints_capabilities', 'gpu', '_available or _heavy', `${jobsPath}/claim`],
      [
        'constraints_capabilities',
        'gpu_required',
        '_available or _heavy',
        '/api/system/scheduler/leases/request',
      ],
      ['constraints_capabilities', '_available', '_available or _heavy, after a name', `${jobsPath}/claim`],
      ['constraints_capabilities', 'gpu', '_available or _heavy', '/internal/worker/claim'],
    ] as const) {
      it(`answers 400 for ${field} with the key ${key}, from ${ask}`, async () => {
        const least = { ...job(), type: 'a', requested_units: 1, worker_id: 'w', streams: ['nothing-here'] };
        const { status, body } = await post(server, ask, {
          ...least,
          stream: null,
          [field]: { [key]: true },
        });
        expect(status).to.equal(400);
        expect(body).to.include({ code: 'invalid_request', field: `${field}.${key}` });
        expect(body.detail).to.include(`a key must end in ${rule}`);
      });
    }

    it('accepts invalid constraints of jobs that are stored already', async () => {
      const { job_id, addon_id } = await submit(server, { cost_units: 1 });
      await server.database.query(`update jobs set constraints = '{"colour": "green"}' where job_id = $1`, [
        job_id,
      ]);
      const claimed = await post(server, `${jobsPath}/claim`, { addon_id, worker_id: 'w' });
      expect(claimed.body.job.constraints).to.deep.equal({ colour: 'green' });
      await post(server, `${jobsPath}/${job_id}/cancel`, {});
      const retried = await post(server, `${jobsPath}/${job_id}/retry`, {});
      expect([retried.status, retried.body.job.state]).to.deep.equal([200, 'QUEUED']);
    });
  });
});
