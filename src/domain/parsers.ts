import {
  AcquireLease,
  ClaimJobs,
  Heartbeat,
  ListJobEvents,
  ListJobs,
  ListLeases,
  OperatorRequest,
  ReleaseLease,
  RequestLease,
  RetryJobs,
  SetCapacity,
  SubmitJob,
  UpdateJobStatus,
} from './commands.ts';
import {
  AcquireFiles,
  InstructBlocker,
  ListBlockers,
  ListFileLeases,
  OwnerWord,
  ReleaseFiles,
  WatchFiles,
} from './file-commands.ts';
import { parser } from './parse.ts';
import { GetSnapshot, GetTimeseries, WatchSnapshots } from './stats-commands.ts';
import { CompleteLease, FailLease, SystemJob } from './system-commands.ts';
import { WorkerClaim, WorkerComplete, WorkerFail, WorkerHeartbeat } from './worker-commands.ts';

/** The checkers of everything that may be asked, made once for all faces. */
export const parse = {
  submitJob: parser(SubmitJob),
  claimJobs: parser(ClaimJobs),
  updateJobStatus: parser(UpdateJobStatus),
  operatorRequest: parser(OperatorRequest),
  retryJobs: parser(RetryJobs),
  listJobs: parser(ListJobs),
  listJobEvents: parser(ListJobEvents),
  requestLease: parser(RequestLease),
  acquireLease: parser(AcquireLease),
  heartbeat: parser(Heartbeat),
  releaseLease: parser(ReleaseLease),
  listLeases: parser(ListLeases),
  setCapacity: parser(SetCapacity),
  getSnapshot: parser(GetSnapshot),
  getTimeseries: parser(GetTimeseries),
  watchSnapshots: parser(WatchSnapshots),
  systemJob: parser(SystemJob),
  completeLease: parser(CompleteLease),
  failLease: parser(FailLease),
  workerClaim: parser(WorkerClaim),
  workerHeartbeat: parser(WorkerHeartbeat),
  workerComplete: parser(WorkerComplete),
  workerFail: parser(WorkerFail),
  acquireFiles: parser(AcquireFiles),
  ownerWord: parser(OwnerWord),
  releaseFiles: parser(ReleaseFiles),
  listFileLeases: parser(ListFileLeases),
  listBlockers: parser(ListBlockers),
  instructBlocker: parser(InstructBlocker),
  watchFiles: parser(WatchFiles),
};
