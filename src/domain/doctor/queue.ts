import { counted, countedTo } from '../explain/text.ts';
import type { JsonObject } from '../jobs/job.ts';
import { span } from '../time.ts';
import { namesJob, suits } from '../workers/known-requests.ts';
import type { QueueFacts, QueueHead, SilentLease, Thresholds } from './facts.ts';
import { queueCountMax } from './facts.ts';
import { type Finding, type FindingLevel, finding } from './finding.ts';
import { whole } from './units.ts';

/** How many kinds of jobs, streams and leases one finding names. */
const namedMax = 5;

const found = (
  code: string,
  level: FindingLevel,
  text: string,
  advice: string | null = null,
  facts: JsonObject = {},
) => finding('queue', code, level, text, advice, facts);

/** Checks waiting, running and failed jobs for problems that an operator has to solve. */
export function checkQueue(queue: QueueFacts | null, limits: Thresholds): Finding[] {
  if (!queue) {
    const advice = 'ask again; if it stays so, see what holds the tables locked';
    return [found('queue', 'WARN', 'the queue could not be read in time', advice)];
  }
  return [
    checkUnits(queue),
    checkOldestJob(queue, limits),
    ...checkRequests(queue, limits),
    checkCosts(queue),
    checkDeadLetters(queue),
    checkSilentLeases(queue.silent),
  ];
}

function checkUnits({ capacity, heads }: QueueFacts): Finding {
  const { total, busyRating, usable, used } = capacity;
  const facts = { total, busy_rating: busyRating, usable, used, jobs_wait: heads.length > 0 };
  if (usable > 0) {
    const text = `${whole(usable)} of ${whole(total)} units are usable, and ${whole(used)} are used`;
    return found('usable_capacity', 'OK', text, null, facts);
  }
  const waits = heads.length > 0 ? 'jobs are ready and none can start' : 'no job could start';
  return found(
    'usable_capacity',
    heads.length > 0 ? 'PROBLEM' : 'WARN',
    `no unit is usable with a total of ${whole(total)} and a busy rating of ${busyRating}: ${waits}`,
    total === 0
      ? "raise the total: 'leasehold capacity set --total <units>'"
      : "lower the busy rating: 'leasehold capacity set --busy-rating 0'",
    facts,
  );
}

/** The head that has been ready for longest. */
export const oldestOf = (heads: readonly QueueHead[]): QueueHead | undefined =>
  heads.reduce<QueueHead | undefined>(
    (oldest, head) => (oldest && oldest.readyMs >= head.readyMs ? oldest : head),
    undefined,
  );

const kindWords = ({ jobType, stream }: QueueHead): string =>
  stream === null ? jobType : `${jobType} of stream ${stream}`;

const kindFacts = ({ jobId, jobType, addonId, stream, requires, readyMs }: QueueHead): JsonObject => ({
  job_type: jobType,
  stream,
  addon_id: addonId,
  requires: [...requires],
  oldest_job_id: jobId,
  oldest_ready_ms: Math.round(readyMs),
});

function checkOldestJob({ heads, oldestCauses }: QueueFacts, { longReadyMs }: Thresholds): Finding {
  const oldest = oldestOf(heads);
  if (!oldest) return found('oldest_ready', 'OK', 'no job is ready', null, { job_id: null });
  const [main] = oldestCauses;
  const why = main ? `: ${main.text}` : '';
  return found(
    'oldest_ready',
    oldest.readyMs > longReadyMs ? 'WARN' : 'OK',
    `the oldest ready job is ${oldest.jobId} (${kindWords(oldest)}), ready for ${span(oldest.readyMs)}${why}`,
    `see 'leasehold explain ${oldest.jobId}'`,
    {
      job_id: oldest.jobId,
      job_type: oldest.jobType,
      addon_id: oldest.addonId,
      stream: oldest.stream,
      ready_ms: Math.round(oldest.readyMs),
      cause: main?.code ?? null,
    },
  );
}

function checkRequests({ heads, headsCut, asks }: QueueFacts, { unaskedMs }: Thresholds): Finding[] {
  const codes = ['types_without_worker', 'capability_without_worker'] as const;
  if (asks === null) {
    const text = 'workers ask for too many kinds of jobs to compare them with the jobs that are ready';
    return codes.map((code) => found(code, 'OK', text));
  }
  const unasked = heads.filter((head) => head.readyMs >= unaskedMs && !asks.some((ask) => suits(ask, head)));
  const noCapability = unasked.filter((head) => asks.some((ask) => namesJob(ask, head)));
  const noWorker = unasked.filter((head) => !noCapability.includes(head));
  const judge = (code: string, without: readonly QueueHead[], words: typeof typeWords, advice: string) => {
    const kinds = oldestOfEachKind(without);
    const level = kinds.length > 0 ? 'WARN' : 'OK';
    const facts = { kinds: kinds.slice(0, 4 * namedMax).map(kindFacts), lanes_left_out: headsCut };
    return found(code, level, words(kinds), advice, facts);
  };
  return [
    judge(
      codes[0],
      noWorker,
      typeWords,
      "start a worker that asks for them, or see 'leasehold explain' of a job for what it needs",
    ),
    judge(
      codes[1],
      noCapability,
      capabilityWords,
      'start a worker with these capabilities, or cancel the jobs and submit them with other constraints',
    ),
  ];
}

/** One head for each type, stream and set of requirements: the head that has been ready for longest. */
function oldestOfEachKind(heads: readonly QueueHead[]): QueueHead[] {
  const kinds = Map.groupBy(heads, ({ jobType, stream, requires, heavy }) =>
    JSON.stringify([jobType, stream, requires, heavy]),
  );
  const oldest = [...kinds.values()].flatMap((same) => oldestOf(same) ?? []);
  return oldest.sort((a, b) => b.readyMs - a.readyMs);
}

const listed = (kinds: readonly QueueHead[], words: (kind: QueueHead) => string): string => {
  const more = kinds.length > namedMax ? `, and ${counted(kinds.length - namedMax, 'more kind')}` : '';
  return `${kinds.slice(0, namedMax).map(words).join(', ')}${more}`;
};

const typeWords = (kinds: readonly QueueHead[]): string =>
  kinds.length === 0
    ? 'a worker asks for each type of job that is ready'
    : `jobs are ready that no known worker asks for: ${listed(kinds, (kind) => `${kindWords(kind)}, ready for ${span(kind.readyMs)}`)}`;

const capabilityWords = (kinds: readonly QueueHead[]): string =>
  kinds.length === 0
    ? 'every ready job that workers ask for has a worker with the capabilities it needs'
    : `jobs are ready that workers ask for, and none of them may take: ${listed(
        kinds,
        (kind) => `${kindWords(kind)} needs ${needWords(kind)}, ready for ${span(kind.readyMs)}`,
      )}`;

const needWords = ({ requires, heavy }: QueueHead): string =>
  [
    ...requires.map((name) => `${name}_available: true`),
    ...heavy.map((name) => `not ${name}_heavy: false`),
  ].join(' and ');

function checkCosts({ capacity, heads, tooCostly, firstTooCostly }: QueueFacts): Finding {
  const { total, usable } = capacity;
  // An unschedulable job that no dispatcher has examined yet is still at the head of its lane. With a total
  // of 0, the total itself is the problem.
  const inLine = total === 0 ? [] : heads.filter(({ costUnits }) => costUnits > total);
  const jobs = tooCostly + inLine.length;
  const first = firstTooCostly ?? inLine[0];
  const facts = { jobs, first_job_id: first?.jobId ?? null, total, usable };
  if (!first) return found('costs_more_than_total', 'OK', 'no job costs more than the total', null, facts);
  return found(
    'costs_more_than_total',
    'WARN',
    `${countedTo(jobs, queueCountMax, 'job')} ${jobs === 1 ? 'costs' : 'cost'} more than the total of ${whole(total)} units and cannot start; the first is ${first.jobId} with ${counted(first.costUnits, 'unit')}`,
    "raise the total ('leasehold capacity set --total <units>'), or cancel them",
    facts,
  );
}

function checkDeadLetters({ deadLetters }: QueueFacts): Finding {
  const jobs = deadLetters.reduce((sum, { jobs }) => sum + jobs, 0);
  const most = deadLetters.toSorted((a, b) => b.jobs - a.jobs);
  const facts = {
    jobs: Math.min(jobs, queueCountMax),
    streams: most.slice(0, 4 * namedMax).map(({ stream, jobs }) => ({ stream, jobs })),
  };
  if (jobs === 0) return found('dead_letters', 'OK', 'no stream has dead letters', null, facts);
  // Beyond the bound the counts of single streams are too low, and later streams were not read.
  const isMore = jobs > queueCountMax;
  const streams = most
    .slice(0, namedMax)
    .map(({ stream, jobs }) => (isMore ? stream : `${whole(jobs)} in ${stream}`));
  const more = most.length > namedMax ? `, and in ${counted(most.length - namedMax, 'more stream')}` : '';
  return found(
    'dead_letters',
    'WARN',
    `streams gave up ${countedTo(jobs, queueCountMax, 'job')}${isMore ? ', first of all' : ':'} ${streams.join(', ')}${more}`,
    "see 'leasehold jobs list --dead-letters' and 'leasehold explain <job_id>'; then 'leasehold jobs retry --dead-letters --stream <stream>'",
    facts,
  );
}

function checkSilentLeases(silent: readonly SilentLease[]): Finding {
  const [first] = silent;
  const facts = {
    leases: silent.length,
    first: silent.slice(0, namedMax).map(({ leaseId, jobId, workerId, silentMs, ttlS }) => ({
      lease_id: leaseId,
      job_id: jobId,
      worker_id: workerId,
      silent_ms: Math.round(silentMs),
      ttl_s: ttlS,
    })),
  };
  if (!first) return found('silent_leases', 'OK', 'no lease has been silent for ¾ of its TTL', null, facts);
  const { workerId, silentMs, ttlS, leaseId } = first;
  return found(
    'silent_leases',
    'WARN',
    `${counted(silent.length, 'lease')} ${silent.length === 1 ? 'has' : 'have'} been silent for ¾ of the TTL; the first is that of ${workerId}, silent for ${span(silentMs)} of ${span(ttlS * 1000)}`,
    `see whether ${workerId} still runs; 'leasehold explain ${leaseId}'`,
    facts,
  );
}
