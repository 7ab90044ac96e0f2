/**
 * The request and the heartbeat contract, below `/api/system/scheduler`. Also the routes that they mention
 * and do not name: submitting and reading jobs, completing and failing them.
 */
import { heartbeatOf } from '../../domain/leases/heartbeat.ts';
import { releaseOf } from '../../domain/leases/release.ts';
import { parse } from '../../domain/requests/parsers.ts';
import { completionOf, failureOf, submissionOf } from '../../domain/requests/system.ts';
import { iso } from '../../domain/time.ts';
import type { Engine } from '../../engine/engine.ts';
import { draft } from '../../engine/jobs/submitter.ts';
import { withAliases } from '../http/field-aliases.ts';
import type { RestRequest, Route } from '../http/router.ts';
import { jobResult } from '../jobs/schemas.ts';
import { systemAbout } from './docs.ts';
import { systemJob, workAnswer } from './schemas.ts';

const base = '/api/system/scheduler';

export const systemRoutes = (engine: Engine): Route[] =>
  [...jobRoutes(engine), ...leaseRoutes(engine)].map((route) => withAliases(ownWords, route));

const jobRoutes = ({ jobs, settings }: Engine): Route[] => [
  {
    method: 'POST',
    path: `${base}/jobs`,
    about: systemAbout.submitSystemJob,
    async handle({ body, caller }) {
      const submission = submissionOf(parse.systemJob(body));
      const { job } = await jobs.submit(draft(submission, false, settings), caller);
      return { status: 201, body: { job: systemJob(job) } };
    },
  },
  {
    method: 'GET',
    path: `${base}/jobs/{job_id}`,
    about: systemAbout.getSystemJob,
    async handle({ path, caller }) {
      const { job, result } = await jobs.get(path.job_id ?? '', caller);
      return { status: 200, body: { job: systemJob(job), result: result && jobResult(result) } };
    },
  },
];

const leaseRoutes = (engine: Engine): Route[] => [
  {
    method: 'POST',
    path: `${base}/leases/request`,
    about: systemAbout.acquireLease,
    async handle({ body, caller }) {
      return { status: 200, body: workAnswer(await engine.leases.acquire(parse.acquireLease(body), caller)) };
    },
  },
  {
    method: 'POST',
    path: `${base}/leases/{lease_id}/heartbeat`,
    about: systemAbout.keepLease,
    async handle({ path, body, caller }) {
      const extended = await engine.leases.heartbeat(
        heartbeatOf(leaseId(path), parse.heartbeat(body)),
        caller,
      );
      return {
        status: 200,
        body: {
          ok: true,
          expires_at: iso(extended.expiresAtMs),
          ttl_remaining_ms: Math.max(0, Math.floor(extended.ttlRemainingMs)),
          cancel_requested: extended.cancelRequested,
          drain: engine.draining,
        },
      };
    },
  },
  {
    method: 'POST',
    path: `${base}/leases/{lease_id}/complete`,
    about: systemAbout.completeLease,
    async handle({ path, body, caller }) {
      const command = completionOf(parse.completeLease(body));
      const { job } = await engine.leases.release(
        releaseOf(leaseId(path), command, { mayRetry: false }),
        caller,
      );
      return { status: 200, body: { ok: true, job: systemJob(job) } };
    },
  },
  {
    method: 'POST',
    path: `${base}/leases/{lease_id}/fail`,
    about: systemAbout.failLease,
    async handle({ path, body, caller }) {
      const command = failureOf(parse.failLease(body));
      const { job, lease } = await engine.leases.release(
        releaseOf(leaseId(path), command, { mayRetry: true }),
        caller,
      );
      return { status: 200, body: { ok: true, job: systemJob(job), requeued: lease.requeued } };
    },
  },
];

const leaseId = (path: RestRequest['path']): string => path.lease_id ?? '';

/**
 * Fields that the engine knows by the queue contract's name. Errors of the schemas use the contract's name
 * already.
 */
const ownWords: ReadonlyMap<string, string> = new Map([
  ['client_request_id', 'idempotency_key'],
  ['result_data', 'result'],
]);
