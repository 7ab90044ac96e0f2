/** Every bound that a request can run into, in one place. The contracts' readers see them in the reference. */
export const limits = {
  jobBytes: 1024 * 1024,
  frameBytes: 16 * 1024 * 1024,
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
  /** Verdicts in one frame: they fit into the 4 MiB that clients take by default, however they are worded. */
  verdictsPerFrame: 2_000,
} as const;
