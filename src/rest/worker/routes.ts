/** The worker contract, `/internal/worker/*`: its paths, field names and statuses. */
import { heartbeatOf } from '../../domain/leases/heartbeat.ts';
import { releaseOf } from '../../domain/leases/release.ts';
import { parse } from '../../domain/requests/parsers.ts';
import {
  acquisitionOf,
  messageOf,
  workerCompletionOf,
  workerFailureOf,
} from '../../domain/requests/worker.ts';
import { iso } from '../../domain/time.ts';
import type { Engine } from '../../engine/engine.ts';
import type { ErrorBody } from '../http/errors.ts';
import { withAliases } from '../http/field-aliases.ts';
import type { Route } from '../http/router.ts';
import { workerAbout } from './docs.ts';
import { claimed } from './schemas.ts';

const base = '/internal/worker';

export const workerRoutes = (engine: Engine): Route[] =>
  routes(engine).map((route) => withAliases(ownWords, route));

/** Fields that the engine knows by the queue contract's name. */
const ownWords: ReadonlyMap<string, string> = new Map([['result_data', 'result']]);

const routes = (engine: Engine): Route[] => [
  {
    method: 'POST',
    path: `${base}/claim`,
    about: workerAbout.workerClaim,
    async handle({ body, caller }) {
      const outcome = await engine.leases.acquire(acquisitionOf(parse.workerClaim(body)), caller);
      return { status: 200, body: claimed(outcome) };
    },
    refusal: (error) => ({ claimed: false, ...error }),
  },
  {
    method: 'POST',
    path: `${base}/heartbeat`,
    about: workerAbout.workerHeartbeat,
    async handle({ body, caller }) {
      const command = parse.workerHeartbeat(body);
      const { job_id, lease_token } = command;
      const leaseId = command.attempt_id ?? (await engine.leases.findByToken(job_id, lease_token, caller));
      const extended = await engine.leases.heartbeat(heartbeatOf(leaseId, command), caller);
      return {
        status: 200,
        body: {
          ok: true,
          lease_expires_at: iso(extended.expiresAtMs),
          ttl_remaining_ms: Math.max(0, Math.floor(extended.ttlRemainingMs)),
          cancel_requested: extended.cancelRequested,
          drain: engine.draining,
        },
      };
    },
    refusal: (error) => ({ ok: false, lease_expires_at: null, ...error }),
  },
  {
    method: 'POST',
    path: `${base}/complete`,
    about: workerAbout.workerComplete,
    async handle({ body, caller }) {
      const command = parse.workerComplete(body);
      const rules = { mayRetry: false, message: messageOf(command) };
      await engine.leases.end(releaseOf(command.attempt_id, workerCompletionOf(command), rules), caller);
      return { status: 200, body: { ok: true, ack: true } };
    },
    refusal: (error) => ({ ok: false, ack: isOver(error), ...error }),
  },
  {
    method: 'POST',
    path: `${base}/fail`,
    about: workerAbout.workerFail,
    async handle({ body, caller }) {
      const command = parse.workerFail(body);
      const rules = { mayRetry: true, retryableByDefault: true, message: messageOf(command) };
      const release = releaseOf(command.attempt_id, workerFailureOf(command), rules);
      const { requeued, deadLettered } = await engine.leases.end(release, caller);
      return { status: 200, body: { ok: true, ack: true, requeued, dlq: deadLettered } };
    },
    refusal: (error) => ({ ok: false, ack: isOver(error), requeued: false, dlq: false, ...error }),
  },
];

/**
 * When an attempt has ended, its message was finished, requeued or dead-lettered with it, so it is not needed
 * any more.
 */
const isOver = ({ code }: ErrorBody): boolean => code === 'lease_not_active';
