/** Every bound that a request can exceed. The reference documentation lists them. */
export const limits = {
  jobBytes: 1024 * 1024,
  frameBytes: 16 * 1024 * 1024,
  /** Bytes of unfinished requests that one server holds in total: eight frames of the largest size. */
  receivingBytes: 128 * 1024 * 1024,
  /** Bytes per second that a request must sustain while it is received. */
  receivingBytesPerS: 64 * 1024,
  /** How late a request must be before other requests may evict it, and how late it may be at all. */
  receivingStallMs: 1_000,
  receivingBehindMs: 30_000,
  /** JSON bytes of the jobs in one answer: gRPC clients accept 4 MiB by default. */
  answerBytes: 3.5 * 1024 * 1024,
  /** Bytes of a job in an answer besides its constraints and its payload. */
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
  /** Dead letters that one call retries. */
  retryJobs: 500,
  pageRows: 200,
  pageRowsDefault: 50,
  /**
   * Groups of jobs on one page of the queue. For the oldest job of each group the server finds out why it
   * waits.
   */
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
  /** Kinds of jobs for which one stream of work may have credit at the same time. */
  creditKinds: 100,
  /** How long a grant on a stream may stay unconfirmed by a heartbeat or a release. */
  deliveryS: 10,
  /** Heartbeats of usual length on one stream that may be read and not yet answered. */
  streamHeartbeats: 20_000,
  /** Files in one request, and bytes of one path. */
  filesPerRequest: 10_000,
  pathBytes: 4_096,
  repositoryChars: 500,
  /** Leases or contentions of files on one page. */
  filePageRows: 1_000,
  filePageRowsDefault: 200,
  /** Lost files that the answer to one heartbeat lists. */
  lostFilesTold: 100,
  /**
   * Workers that one server keeps in its list, for `ListWorkers`: this many with an open stream, and this
   * many others. Workers beyond that are served in the same way and are not listed.
   */
  workersListed: 5_000,
  /**
   * Kinds of jobs listed per worker and server, those of its calls, and characters in the names of one kind.
   */
  workerAsks: 10,
  workerCalledAsks: 5,
  workerAskChars: 1_000,
  /** Leases, and claims, counted per worker. */
  workerJobsCounted: 10_000,
  /** Streams of WatchJob, WatchSnapshots and WatchFileLeases that one server keeps open in total. */
  watchStreams: 5_000,
  /** Verdicts in one frame. They fit into the 4 MiB that clients accept by default, whatever their texts. */
  verdictsPerFrame: 2_000,
} as const;
