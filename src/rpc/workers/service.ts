import { create } from '@bufbuild/protobuf';
import {
  type StatsService,
  WorkerConnection,
  type Worker as WorkerMessage,
  WorkerSchema,
} from '../../../gen/leasehold/v1/stats_pb.js';
import { parse } from '../../domain/requests/parsers.ts';
import { capabilitiesOf, type Worker } from '../../domain/workers/worker.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Implementation } from '../implementation.ts';
import { timestamp } from '../jobs/convert.ts';
import { pageThatFits } from '../response-size.ts';

/** StatsService.ListWorkers, to be spread into the rest of the service. */
export function workerMethods({ workers }: Engine): Pick<Implementation<typeof StatsService>, 'listWorkers'> {
  return {
    async listWorkers({ workerId, stream, jobType, limit, cursor }, caller) {
      const command = parse.listWorkers({ worker_id: workerId, stream, job_type: jobType, limit, cursor });
      const { messages, nextCursor } = pageThatFits(await workers.list(command, caller), {
        schema: WorkerSchema,
        messageOf: workerMessage,
        cursorOf: ({ workerId: id }) => id,
      });
      return { workers: messages, nextCursor };
    },
  };
}

const workerMessage = ({ workerId, lastHeardAtMs, activeLeases, claims, servers }: Worker): WorkerMessage =>
  create(WorkerSchema, {
    workerId,
    lastHeardAt: lastHeardAtMs === null ? undefined : timestamp(lastHeardAtMs),
    activeLeases,
    claims,
    servers: servers.map((server) => ({
      serverId: server.serverId,
      host: server.host,
      pid: server.pid,
      peer: server.peer,
      connections: server.connections.map((kind) => WorkerConnection[kind]),
      since: timestamp(server.sinceMs),
      lastHeardAt: timestamp(server.lastHeardAtMs),
      slots: server.slots,
      asks: server.asks.map((ask) => ({
        streams: [...(ask.streams ?? [])],
        acceptJobTypes: [...(ask.jobTypes ?? [])],
        addonId: ask.addonId ?? undefined,
        maxUnits: ask.maxCostUnits ?? undefined,
        constraintsCapabilities: capabilitiesOf(ask),
        jobs: ask.jobs,
        truncated: ask.isCut,
      })),
      asksTruncated: server.asksCut,
    })),
  });
