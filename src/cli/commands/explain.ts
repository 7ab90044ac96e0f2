import { type HttpClient, ServerError, urlHelp } from '../../client/http-client.ts';
import { counted } from '../../domain/explain/text.ts';
import type { JobBody } from '../../domain/jobs/job-fields.ts';
import { span } from '../../domain/time.ts';
import type { Command } from '../main.ts';
import { readFlags } from '../support/args.ts';
import { painted, type Style, styleOf } from '../support/color.ts';
import { commonFlags, jsonHelp, onlyWord, withServer } from '../support/operator-client.ts';
import {
  age,
  blank,
  paragraph,
  print,
  printHelp,
  printJson,
  sentence,
  stamp,
  when,
} from '../support/output.ts';
import { type Column, fittedTable, listing } from '../support/table.ts';

interface Cause {
  code: string;
  text: string;
}

interface Step {
  ts: string;
  until: string | null;
  text: string;
  times: number;
  kind: string;
}

interface Attempt {
  attempt_id: string;
  attempt: number;
  worker_id: string;
  fence: number;
  ttl_sec: number;
  state: string;
  granted_at: string;
  last_heartbeat_at: string;
  expires_at: string;
  ended_at: string | null;
  release_status: string | null;
  causes: Cause[];
  heartbeats: number | null;
  mean_heartbeat_interval_ms: number | null;
  longest_silence: { lasted_ms: number; ttl_share: number } | null;
}

interface Explanation {
  ts: string;
  job: JobBody;
  lease: { lease_id: string; state: string } | null;
  since: string;
  summary: string;
  causes: Cause[];
  steps: Step[];
  steps_left_out: number;
  left_out_after: number;
  attempts: Attempt[];
  attempts_left_out: number;
}

export const explainCommand: Command = {
  name: 'explain',
  flags: commonFlags,
  help: () => `Usage: leasehold explain <job_id | lease_id> [flags]

Explains the state of a job or a lease: first the answer in one sentence, then
its causes, its history, and its attempts with their heartbeats.

${jsonHelp}
${urlHelp}

Exits with 1 if there is no such job or lease, or no server answers.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, commonFlags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    const id = onlyWord(words, 'job or lease');
    return withServer(values.url, async (server) => {
      const explanation = await explainEither(server, encodeURIComponent(id));
      if (values.json) printJson(explanation);
      else print(explanationWords(explanation));
      return 0;
    });
  },
};

/** Accepts the id of a job or of a lease, so that an operator need not know which one it is. */
async function explainEither(server: HttpClient, id: string): Promise<Explanation> {
  try {
    return await server.get<Explanation>(`/api/scheduler/jobs/${id}/explain`);
  } catch (error) {
    if (!(error instanceof ServerError) || error.code !== 'job_not_found') throw error;
    try {
      return await server.get<Explanation>(`/api/scheduler/lease/${id}/explain`);
    } catch (second) {
      if (!(second instanceof ServerError) || second.code !== 'lease_not_found') throw second;
      throw new ServerError(`there is no job and no lease ${decodeURIComponent(id)}`, { code: error.code });
    }
  }
}

function explanationWords(explanation: Explanation): string {
  const { job, lease, ts, since } = explanation;
  const nowMs = Date.parse(ts);
  const what: [string, unknown, Style?][] = [
    ...(lease ? ([['lease', `${lease.lease_id} ${lease.state}`]] as [string, unknown][]) : []),
    ['job', job.job_id],
    ['state', `${job.state} since ${when(since, nowMs)}`, styleOf(job.state)],
    ['what', `${job.job_type} of ${job.addon_id}, ${job.priority}, ${counted(job.cost_units, 'unit')}`],
    ...(job.stream === null ? [] : ([['stream', job.stream]] as [string, unknown][])),
    ['attempts', `${job.attempts} of ${job.max_attempts}`],
    ['worker', job.claimed_by],
    ['progress', job.progress === null ? null : `${Math.round(job.progress * 100)} %`],
    ['note', job.note],
  ];
  const parts = [
    answer(explanation),
    listing(what.filter(([, value]) => value !== null && value !== '')),
    section('Why', causeLines(explanation.causes)),
    section('What happened', stepLines(explanation, nowMs)),
    ...(explanation.attempts.length === 0 ? [] : [section('Attempts', attemptsTable(explanation, nowMs))]),
  ];
  return parts.join('\n\n');
}

/** The answer in one sentence. Its first word has the colour of the state. */
function answer({ summary, job, lease }: Explanation): string {
  const [head = '', ...rest] = sentence(summary).split(':');
  const style = styleOf((lease ?? job).state);
  return paragraph([painted(head, style), ...rest].join(':'));
}

const section = (title: string, body: string): string => `${painted(title, 'bold')}\n${body}`;

/** Shows the codes beside the sentences: operators find them in the documentation, and scripts match them. */
const causeLines = (causes: readonly Cause[]): string =>
  causes.length === 0
    ? '  The cause is unknown.'
    : listing(
        causes.map(({ code, text }) => [code, sentence(text)]),
        { indent },
      );

const indent = 2;

interface Line {
  time: string;
  after: string;
  text: string;
}

function stepLines({ steps, steps_left_out, left_out_after }: Explanation, nowMs: number): string {
  const rows = steps.map((step, i): Line => {
    const before = steps[i - 1];
    const after = before ? `+${span(Date.parse(step.ts) - Date.parse(before.ts))}` : age(step.ts, nowMs);
    const often = step.times > 1 && step.until ? `, ${step.times} times until ${stamp(step.until)}` : '';
    return { time: stamp(step.ts), after, text: `${sentence(step.text)}${often}` };
  });
  if (steps_left_out > 0) {
    const text = `${steps_left_out} more events; see 'jobs events'`;
    rows.splice(left_out_after, 0, { time: '…', after: '', text });
  }
  return fittedTable(stepColumns, rows, { indent, headings: false });
}

const stepColumns: readonly Column<Line>[] = [
  { heading: '', of: ({ time }) => time, style: () => 'dim' },
  { heading: '', of: ({ after }) => after || blank, style: () => 'dim', rank: 1 },
  { heading: '', of: ({ text }) => text, wraps: true, atLeast: 32 },
];

function attemptsTable({ attempts, attempts_left_out }: Explanation, nowMs: number): string {
  const left =
    attempts_left_out > 0
      ? `\n${' '.repeat(indent)}${counted(attempts_left_out, 'older attempt')} not shown`
      : '';
  return `${fittedTable(attemptColumns(nowMs), attempts, { indent })}${left}`;
}

const attemptColumns = (nowMs: number): readonly Column<Attempt>[] => [
  { heading: 'NO', of: ({ attempt }) => attempt },
  { heading: 'WORKER', of: ({ worker_id }) => worker_id, atLeast: 12, rank: 1 },
  { heading: 'FENCE', of: ({ fence }) => fence, rank: 12 },
  { heading: 'TTL', of: ({ ttl_sec }) => span(ttl_sec * 1000), rank: 11 },
  { heading: 'GRANTED', of: ({ granted_at }) => stamp(granted_at), rank: 5 },
  { heading: 'HEARTBEAT', of: ({ last_heartbeat_at }) => age(last_heartbeat_at, nowMs), rank: 7 },
  { heading: 'ENDS', of: ({ ended_at, expires_at }) => age(ended_at ?? expires_at, nowMs), rank: 4 },
  { heading: 'STATE', of: ({ state }) => state, style: ({ state }) => styleOf(state) },
  {
    heading: 'STATUS',
    of: ({ release_status }) => release_status,
    style: ({ release_status }) => styleOf(release_status ?? ''),
    rank: 6,
  },
  { heading: 'WHY', of: ({ causes }) => causes.map(({ code }) => code).join(', '), wraps: true, atLeast: 18 },
  { heading: 'LEASE', of: ({ attempt_id }) => attempt_id, rank: 10 },
  { heading: 'HEARTBEATS', of: heartbeats, rank: 9 },
  { heading: 'LONGEST SILENCE', of: longestSilence, rank: 8 },
];

const heartbeats = ({ heartbeats: count, mean_heartbeat_interval_ms: ms }: Attempt): string | null => {
  if (count === null) return null;
  return ms === null ? `${count}` : `${count}, one every ${span(ms)}`;
};

/** The share of the TTL shows how near the lease was to its expiry; the steps show when. */
const longestSilence = ({ longest_silence: silence }: Attempt): string | null =>
  silence && `${span(silence.lasted_ms)}, ${Math.round(silence.ttl_share * 100)} %`;
