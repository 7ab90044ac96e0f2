/** Every bound that a request can run into, in one place. The contracts' readers see them in the reference. */
export const limits = {
  jobBytes: 1024 * 1024,
  frameBytes: 16 * 1024 * 1024,
  /** Bytes of unfinished requests that one server holds together: eight of the largest frames. */
  receivingBytes: 128 * 1024 * 1024,
  /** Bytes a second that a request has to keep up with while it is received. */
  receivingBytesPerS: 64 * 1024,
  /** How long a request may be slower than that before others take its room, and by how much it may fall behind at all. */
  receivingStallMs: 1_000,
  receivingBehindMs: 30_000,
  /** Jobs in one answer, by their JSON: clients of gRPC take 4 MiB by default. */
  answerBytes: 3.5 * 1024 * 1024,
  /** What a job takes in an answer beside its constraints and its payload. */
  jobOverheadBytes: 512,
  batchJobs: 10_000,
  nameChars: 200,
  requestIdChars: 200,
  noteChars: 2_000,
  tags: 50,
  tagChars: 100,
  claimJobs: 1_000,
  /** Streams or job types in one request. */
  choices: 500,
  capabilities: 100,
  /** Dead letters that are retried by one call. */
  retryJobs: 500,
  pageRows: 200,
  pageRowsDefault: 50,
  /** Groups of jobs on one page of the queue; for the oldest job of each it is found out why it waits. */
  queueGroups: 50,
  queueGroupsDefault: 20,
  costUnits: 1_000_000_000,
  leaseTtlS: 3_600,
  /** How long a call may wait for work. */
  waitMs: 60_000,
  maxAttempts: 1_000,
  maxRuntimeS: 30 * 24 * 3600,
  retryBackoffS: 600,
  retryBackoffSDefault: 2,
  /** Jobs that one credit of a stream of work may ask for. */
  creditJobs: 10_000,
  /** Kinds of jobs that one stream of work may have credit for at the same time. */
  creditKinds: 100,
  /** How long a grant on a stream may be on its way: until its worker is heard, or hands the job in. */
  deliveryS: 10,
  /** Heartbeats of usual length that one stream may have between being read and being answered. */
  streamHeartbeats: 20_000,
  /** Files in one request, and bytes of one path. */
  filesPerRequest: 10_000,
  pathBytes: 4_096,
  repositoryChars: 500,
  /** Leases or contentions of files on one page. */
  filePageRows: 1_000,
  filePageRowsDefault: 200,
  /** Files that a heartbeat tells its owner it has lost. */
  lostFilesTold: 100,
  /**
   * Workers that one server keeps in its list, for `ListWorkers`: so many with an open stream, and so many others. Those
   * beyond it work like any other and are not listed.
   */
  workersListed: 5_000,
  /** Kinds of jobs that are listed of one worker on one server, those of its calls, and characters in the names of one kind. */
  workerAsks: 10,
  workerCalledAsks: 5,
  workerAskChars: 1_000,
  /** Leases, and claims, that are counted of one worker. */
  workerJobsCounted: 10_000,
  /** Streams of WatchJob, WatchSnapshots and WatchFileLeases that one server keeps open together. */
  watchStreams: 5_000,
  /** Verdicts in one frame: they fit into the 4 MiB that clients take by default, however they are worded. */
  verdictsPerFrame: 2_000,
} as const;
