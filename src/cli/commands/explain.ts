import { type ServerClient, ServerError, urlHelp } from '../../client/http-client.ts';
import { counted } from '../../domain/explain/text.ts';
import type { JobBody } from '../../domain/jobs/job-fields.ts';
import { span } from '../../domain/time.ts';
import type { Command } from '../main.ts';
import { readFlags } from '../support/args.ts';
import { commonFlags, onlyWord, withServer } from '../support/operator-client.ts';
import { age, cell, listing, plain, print, printJson, stamp, table, when } from '../support/output.ts';

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

Says why a job or a lease stands where it stands: what a job that waits needs to start, how one that runs is, why one
ended or a lease expired; and what happened to it, in order, with its heartbeats and the silences between.

  --json                Answer with one line of JSON, in the words of the API.
${urlHelp}

Ends with 1 where there is no such job or lease, or the server does not answer.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, commonFlags);
    if (help) {
      process.stdout.write(this.help());
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
async function explainEither(server: ServerClient, id: string): Promise<Explanation> {
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
  const what: [string, unknown][] = [
    ...(lease ? ([['lease', `${lease.lease_id} ${lease.state}`]] as [string, unknown][]) : []),
    ['job', job.job_id],
    ['state', `${job.state} since ${when(since, nowMs)}`],
    ['what', `${job.job_type} of ${job.addon_id}, ${job.priority}, ${counted(job.cost_units, 'unit')}`],
    ...(job.stream === null ? [] : ([['stream', job.stream]] as [string, unknown][])),
    ['attempts', `${job.attempts} of ${job.max_attempts}`],
    ['worker', job.claimed_by],
    ['progress', job.progress === null ? null : `${Math.round(job.progress * 100)} %`],
    ['note', job.note],
  ];
  const said = what.filter(([, value]) => value !== null && value !== '');
  const parts = [
    `${plain(explanation.summary)}`,
    listing(said, sentences),
    section('Why', causeLines(explanation.causes)),
    section('What happened', stepLines(explanation, nowMs)),
    ...(explanation.attempts.length === 0 ? [] : [section('Attempts', attemptsTable(explanation, nowMs))]),
  ];
  return parts.join('\n\n');
}

const section = (title: string, body: string): string => `${title}\n${body}`;

/** Shows the codes beside the sentences: operators find them in the documentation, and scripts match them. */
const causeLines = (causes: readonly Cause[]): string =>
  causes.length === 0
    ? '  nothing is known'
    : listing(
        causes.map(({ code, text }) => [`  ${code}`, text]),
        sentences,
      );

function stepLines({ steps, steps_left_out, left_out_after }: Explanation, nowMs: number): string {
  const rows = steps.map((step, i) => {
    const before = steps[i - 1];
    const after = before ? `+${span(Date.parse(step.ts) - Date.parse(before.ts))}` : age(step.ts, nowMs);
    const often = step.times > 1 && step.until ? `, ${step.times} times until ${stamp(step.until)}` : '';
    return [`  ${stamp(step.ts)}`, after, `${step.text}${often}`];
  });
  if (steps_left_out > 0)
    rows.splice(left_out_after, 0, ['  …', '', `${steps_left_out} more events; see 'jobs events'`]);
  return columns(rows);
}

/** Sentences are not cut at the terminal's width; the terminal wraps them. */
const sentences = Number.POSITIVE_INFINITY;

/** A table without a heading. */
const columns = (rows: readonly (readonly string[])[]): string => {
  const widths = [0, 1].map((i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  return listing(
    rows.map(([time = '', after = '', text]) => [
      `${time.padEnd(widths[0] ?? 0)}  ${after.padStart(widths[1] ?? 0)}`,
      text,
    ]),
    sentences,
  );
};

function attemptsTable({ attempts, attempts_left_out }: Explanation, nowMs: number): string {
  const rows = attempts.map((attempt) => [
    `  ${attempt.attempt}`,
    attempt.worker_id,
    attempt.fence,
    `${attempt.ttl_sec} s`,
    when(attempt.granted_at, nowMs),
    when(attempt.last_heartbeat_at, nowMs),
    when(attempt.ended_at ?? attempt.expires_at, nowMs),
    attempt.state,
    attempt.release_status,
    attempt.causes.map(({ code }) => code).join(', '),
    attempt.attempt_id,
    heartbeats(attempt),
    longestSilence(attempt),
  ]);
  const heading = [
    '  NO',
    'WORKER',
    'FENCE',
    'TTL',
    'GRANTED',
    'HEARD',
    'ENDS',
    'STATE',
    'STATUS',
    'WHY',
    'LEASE',
    'HEARTBEATS',
    'LONGEST SILENCE',
  ];
  const left = attempts_left_out > 0 ? `\n  ${cell(attempts_left_out)} older attempts are not shown` : '';
  return `${table(heading, rows)}${left}`;
}

const heartbeats = ({ heartbeats: count, mean_heartbeat_interval_ms: ms }: Attempt): string | null => {
  if (count === null) return null;
  return ms === null ? `${count}` : `${count}, one every ${span(ms)}`;
};

/** The share of the TTL shows how near the lease was to its expiry; the steps show when. */
const longestSilence = ({ longest_silence: silence }: Attempt): string | null =>
  silence && `${span(silence.lasted_ms)}, ${Math.round(silence.ttl_share * 100)} %`;
