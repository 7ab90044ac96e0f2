import { LeaseSchema, type LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { heartbeatOf } from '../../domain/leases/heartbeat.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Implementation } from '../implementation.ts';
import { pageThatFits } from '../response-size.ts';
import { leaseMessage, releaseOfMessage, toLeaseState } from './convert.ts';
import { heartbeatResponse, leaseOutcomeResponse, releaseLeaseResponse } from './encode.ts';

type UnaryMethods = Omit<Implementation<typeof LeasesService>, 'streamHeartbeats' | 'streamWork'>;

/** LeasesService without its bidirectional streams: proto in, one engine call, proto out. */
export function leasesMethods(engine: Engine): UnaryMethods {
  const { leases } = engine;

  return {
    async requestLease(request, caller) {
      const command = parse.requestLease({
        job_id: request.jobId,
        addon_id: request.addonId,
        worker_id: request.workerId,
        ttl_sec: request.ttlSec,
        request_id: request.requestId,
      });
      return leaseOutcomeResponse(await leases.request(command, caller));
    },

    async acquireLease(request, caller) {
      const command = parse.acquireLease({
        worker_id: request.workerId,
        max_units: request.maxUnits,
        constraints_capabilities: request.constraintsCapabilities,
        addon_id: request.addonId,
        accept_job_types: request.acceptJobTypes,
        streams: request.streams,
        wait_ms: request.waitMs,
        ttl_sec: request.ttlSec,
        request_id: request.requestId,
      });
      return leaseOutcomeResponse(await leases.acquire(command, caller));
    },

    async heartbeat(request, caller) {
      const command = parse.heartbeat({
        worker_id: request.workerId,
        lease_token: request.leaseToken,
        job_id: request.jobId,
        progress: request.progress,
        message: request.message,
      });
      const extended = await leases.heartbeat(heartbeatOf(request.leaseId, command), caller);
      return heartbeatResponse(extended, engine.draining);
    },

    async releaseLease(request, caller) {
      const release = releaseOfMessage(request);
      return releaseLeaseResponse(await leases.release(release, caller));
    },

    async getLease({ leaseId }, caller) {
      const { lease } = await leases.get(leaseId, caller);
      return { lease: leaseMessage(lease) };
    },

    async listLeases(request, caller) {
      const command = parse.listLeases({
        states: request.states.map((state, i) => toLeaseState(state, `states[${i}]`)),
        worker_id: request.workerId,
        job_id: request.jobId,
        limit: request.limit,
        cursor: request.cursor,
      });
      const { messages, nextCursor } = pageThatFits(await leases.list(command, caller), {
        schema: LeaseSchema,
        messageOf: leaseMessage,
        cursorOf: ({ leaseId }) => leaseId,
      });
      return { leases: messages, nextCursor };
    },
  };
}
