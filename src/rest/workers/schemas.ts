/** Workers with the queue contract's field names. */
import type { Static } from 'typebox';
import { iso } from '../../domain/time.ts';
import {
  capabilitiesOf,
  connectionKinds,
  type Worker,
  type WorkerServer,
} from '../../domain/workers/worker.ts';
import {
  count,
  entity,
  flag,
  jsonObject,
  list,
  oneOf,
  orNull,
  time,
  uuid,
  whole,
  word,
} from '../openapi/schema-types.ts';

const WorkerAsk = entity('WorkerAsk', 'A kind of jobs that a worker asks for.', {
  streams: list(word('A stream.'), 'Only jobs of these streams; jobs without a stream where it is empty.'),
  accept_job_types: list(word('A job type.'), 'Only jobs of these types; all types where it is empty.'),
  addon_id: orNull(word('Only jobs of this submitter.')),
  max_units: orNull(count('Only jobs of at most this cost.')),
  constraints_capabilities: jsonObject('What the worker has, and what it refuses.'),
  jobs: count(
    'Jobs of this kind that it would take now; 0 where it asked lately and does not at the moment.',
  ),
  truncated: flag('There are more names than are listed.'),
});

const WorkerServerBody = entity('WorkerServer', 'A worker as one server knows it.', {
  server_id: uuid('Given anew at each start of the server.'),
  host: word("The name of the server's host."),
  pid: whole("The server's process on that host."),
  peer: word("The address of the worker's latest call or stream."),
  connections: list(
    oneOf(connectionKinds, 'A stream of work or of heartbeats, a call that waits, or single calls of late.'),
    'How the worker is connected; at least one.',
  ),
  since: time('Since when the server has known the worker without a gap of 30 seconds.'),
  last_heard_at: time('The latest call or frame of the worker, as it was up to 10 seconds ago.'),
  slots: count('Jobs that it would take now, of all kinds that it asks for.'),
  asks: list(WorkerAsk, 'The kinds of jobs that it asks for; at most 10.'),
  asks_truncated: flag('It asks for more kinds than are listed.'),
});

export const WorkerBody = entity('Worker', 'A worker, and the servers that know it.', {
  worker_id: word('Its name, as it says it.'),
  last_heard_at: orNull(time('The latest call, frame or heartbeat of it.')),
  active_leases: count('The leases that it holds, counted up to 10,000.'),
  claims: count('The jobs that it has claimed and not leased, counted up to 10,000.'),
  servers: list(WorkerServerBody, 'Empty if it holds jobs and has called no server for 30 seconds.'),
});

export const workerBody = (worker: Worker): Static<typeof WorkerBody> => ({
  worker_id: worker.workerId,
  last_heard_at: worker.lastHeardAtMs === null ? null : iso(worker.lastHeardAtMs),
  active_leases: worker.activeLeases,
  claims: worker.claims,
  servers: worker.servers.map(serverBody),
});

const serverBody = (server: WorkerServer): Static<typeof WorkerServerBody> => ({
  server_id: server.serverId,
  host: server.host,
  pid: server.pid,
  peer: server.peer,
  connections: server.connections,
  since: iso(server.sinceMs),
  last_heard_at: iso(server.lastHeardAtMs),
  slots: server.slots,
  asks: server.asks.map((ask) => ({
    streams: [...(ask.streams ?? [])],
    accept_job_types: [...(ask.jobTypes ?? [])],
    addon_id: ask.addonId,
    max_units: ask.maxCostUnits,
    constraints_capabilities: capabilitiesOf(ask),
    jobs: ask.jobs,
    truncated: ask.isCut,
  })),
  asks_truncated: server.asksCut,
});
