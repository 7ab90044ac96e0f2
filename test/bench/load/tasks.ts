/** What the load process can be asked to do. */
import { drainTasks, forgetDrained } from './drain-tasks.ts';
import { drive, forCount, forDuration, type Round } from './drive.ts';
import { etcdTasks, forgetEtcd } from './etcd-tasks.ts';
import { fileTasks } from './file-tasks.ts';
import type { Floor, FloorOrder } from './floor.ts';
import { closeHeartbeatFloor, closeStreams, heartbeatTasks } from './heartbeat-tasks.ts';
import { post } from './lean-http.ts';
import * as messages from './messages.ts';
import { closeSnapshot, oldTasks } from './old-tasks.ts';
import { closePeer, peerTasks } from './peer-tasks.ts';
import { closePruning, pruneTasks } from './prune-tasks.ts';
import type { RawDrain } from './raw-drain.ts';
import { type Reconnect, reconnect } from './reconnect-task.ts';
import { statsTasks } from './stats-tasks.ts';
import { closeConnections, type GrpcTarget, httpTo, linksTo, nth } from './targets.ts';
import { forgetJobs, workerTasks } from './worker-tasks.ts';

export interface ClaimRound extends Round {
  /** Jobs that were handed out more than once, to this round or to one before it. */
  duplicates: number;
  /** Answers without a job although there were jobs. */
  empty: number;
}

const claimed = new Set<string>();
let floor: Floor | undefined;
let rawDrain: RawDrain | undefined;

/** The first answer is read in full: a load that is refused would be the fastest of all. */
function batchSubmitter(
  target: GrpcTarget,
  batch: number,
  stream?: string,
): (lane: number) => Promise<number> {
  const open = linksTo(target);
  const request = messages.submitJobs(batch, stream);
  let checked = false;
  return async (lane) => {
    const answer = await nth(open, lane).call(messages.paths.submitJobs, request);
    if (!checked) messages.checkSubmitted(answer, batch);
    checked = true;
    return batch;
  };
}

const fillBatch = 500;
const fillInFlight = 4;

function openFloor(): Floor {
  if (!floor) throw new Error('the floor is not open');
  return floor;
}

const restPath = '/api/scheduler/jobs/submit';
const restJob = {
  addon_id: messages.job.addonId,
  job_type: messages.job.jobType,
  cost_units: messages.job.costUnits,
  payload: messages.job.payload,
  tags: messages.job.tags,
};

export const tasks = {
  submitBatches(on: { target: GrpcTarget; batch: number; inFlight: number; durationMs: number }) {
    return drive(on.inFlight, forDuration(on.durationMs, batchSubmitter(on.target, on.batch)));
  },

  async fill(on: { target: GrpcTarget; jobs: number; stream?: string }) {
    const submit = batchSubmitter(on.target, fillBatch, on.stream);
    return drive(fillInFlight, forCount(Math.ceil(on.jobs / fillBatch), submit));
  },

  submitSingly(on: { target: GrpcTarget; inFlight: number; durationMs: number }) {
    const open = linksTo(on.target);
    const request = messages.submitJob();
    const submit = async (lane: number) => {
      await nth(open, lane).call(messages.paths.submitJob, request);
      return 1;
    };
    return drive(on.inFlight, forDuration(on.durationMs, submit));
  },

  submitRest(on: { address: string; connections: number; durationMs: number }) {
    const open = httpTo(on.address, on.connections);
    const request = post(restPath, restJob);
    const submit = async (lane: number) => {
      const status = await nth(open, lane).send(request);
      if (status !== 201) throw new Error(`REST submit answered ${status}`);
      return 1;
    };
    return drive(on.connections, forDuration(on.durationMs, submit));
  },

  async claim(on: { target: GrpcTarget; claimers: number; jobs: number }): Promise<ClaimRound> {
    const open = linksTo(on.target);
    const requests = Array.from({ length: on.claimers }, (_, i) => messages.claimJob(`worker-${i}`));
    let duplicates = 0;
    let empty = 0;
    const claim = async (lane: number) => {
      const id = messages.claimedJobId(
        await nth(open, lane).call(messages.paths.claimJobs, nth(requests, lane)),
      );
      if (id === undefined) empty++;
      else if (claimed.has(id)) duplicates++;
      else claimed.add(id);
      return id === undefined ? 0 : 1;
    };
    return { ...(await drive(on.claimers, forCount(on.jobs, claim))), duplicates, empty };
  },

  ...heartbeatTasks,
  ...workerTasks,
  ...fileTasks,
  ...pruneTasks,
  ...statsTasks,
  ...drainTasks,
  ...peerTasks,
  ...oldTasks,
  ...etcdTasks,
  reconnect: (on: Reconnect) => reconnect(on),

  async openFloor(on: FloorOrder) {
    // Few scenarios want the store, and loading it takes as long as they do in a smoke run.
    const { Floor } = await import('./floor.ts');
    floor = await Floor.open(on);
  },
  floorSubmit: (on: { durationMs: number }) => openFloor().submit(on.durationMs),
  floorFill: (on: { jobs: number }) => openFloor().fill(on.jobs),
  floorClaim: (on: { jobs: number }) => openFloor().claim(on.jobs),

  async openRawDrain(on: { url: string; stream: string }) {
    const { RawDrain } = await import('./raw-drain.ts');
    rawDrain = await RawDrain.open(on.url, on.stream);
  },
  async rawDrain({ jobs }: { jobs: number }) {
    if (!rawDrain) throw new Error('the floor of drains is not open');
    return rawDrain.drain(jobs);
  },

  /** Lets go of everything. What comes next begins anew. */
  async close() {
    closeStreams();
    closeConnections();
    claimed.clear();
    forgetJobs();
    forgetDrained();
    forgetEtcd();
    await closePeer();
    await closeSnapshot();
    await rawDrain?.close();
    rawDrain = undefined;
    await floor?.close();
    floor = undefined;
    await closeHeartbeatFloor();
    await closePruning();
  },
};

export type Tasks = typeof tasks;
