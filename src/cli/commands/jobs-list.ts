import type { JobBody } from '../../domain/jobs/job-fields.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { type Style, styleOf } from '../support/color.ts';
import { commonFlags, listFlags, onlyWord, withServer } from '../support/operator-client.ts';
import { age, cell, print, printJson, sentence, stamp, when } from '../support/output.ts';
import { showList } from '../support/pages.ts';
import type { Subcommand } from '../support/subcommands.ts';
import { type Column, fittedTable, listing } from '../support/table.ts';

interface EventBody {
  event_id: string;
  ts: string;
  type: string;
  lease_id: string | null;
  data: Record<string, unknown>;
}

const jobFlags = {
  state: 'string',
  'addon-id': 'string',
  'job-type': 'string',
  stream: 'string',
  'dead-letters': 'boolean',
  oldest: 'boolean',
  'created-after': 'string',
  'created-before': 'string',
  ...listFlags,
} as const;

export const listVerb: Subcommand = {
  name: 'list',
  flags: jobFlags,
  async run(args) {
    const { values, words } = readFlags(args, jobFlags);
    if (words.length > 0) throw new UsageError(`lists jobs, and takes no ${JSON.stringify(words[0])}`);
    const filter = {
      state: values.state?.toUpperCase(),
      addon_id: values['addon-id'],
      job_type: values['job-type'],
      stream: values.stream,
      dead_lettered: values['dead-letters'] ? 'true' : undefined,
      oldest_first: values.oldest ? 'true' : undefined,
      created_after: values['created-after'],
      created_before: values['created-before'],
    };
    return showList<JobBody>(values, {
      name: 'jobs',
      path: '/api/scheduler/jobs',
      filter,
      none: 'No jobs.',
      table: (rows) => fittedTable(jobColumns, rows),
    });
  },
};

const jobColumns: readonly Column<JobBody>[] = [
  { heading: 'JOB', of: ({ job_id }) => job_id },
  { heading: 'STATE', of: (job) => stateWords(job), style: ({ state }) => styleOf(state) },
  { heading: 'PRIORITY', of: ({ priority }) => priority, rank: 6 },
  { heading: 'UNITS', of: ({ cost_units }) => cost_units, rank: 7 },
  { heading: 'TYPE', of: ({ job_type }) => job_type, atLeast: 8, rank: 1 },
  { heading: 'ADDON', of: ({ addon_id }) => addon_id, atLeast: 8, rank: 4 },
  { heading: 'STREAM', of: ({ stream }) => stream, atLeast: 8, rank: 5 },
  { heading: 'ATTEMPTS', of: ({ attempts, max_attempts }) => `${attempts}/${max_attempts}`, rank: 8 },
  { heading: 'WORKER', of: ({ claimed_by }) => claimed_by, atLeast: 10, rank: 3 },
  { heading: 'SUBMITTED', of: ({ created_at }) => stamp(created_at), rank: 9 },
  { heading: 'CHANGED', of: ({ updated_at }) => age(updated_at), rank: 2 },
];

const stateWords = ({ state, dead_lettered, cancel_requested }: JobBody): string =>
  `${state}${dead_lettered ? ' dead' : ''}${cancel_requested && state !== 'CANCELED' ? ' canceling' : ''}`;

export const getVerb: Subcommand = {
  name: 'get',
  flags: commonFlags,
  async run(args) {
    const { values, words } = readFlags(args, commonFlags);
    const jobId = onlyWord(words, 'job');
    return withServer(values.url, async (server) => {
      const found = await server.get<{ job: JobBody; result: object | null }>(jobPath(jobId));
      if (values.json) printJson(found);
      else {
        const entries = [...Object.entries(found.job), ...Object.entries(found.result ?? {})];
        print(listing(entries.map(entryOf)));
      }
      return 0;
    });
  },
};

const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;

/** A field and its value for a listing: a time with its distance from now, and a state in its colour. */
export const entryOf = ([name, value]: [string, unknown]): [string, string, Style?] => {
  if (typeof value !== 'string') return [name, cell(value)];
  return isTime.test(value) ? [name, when(value)] : [name, cell(value), styleOf(value)];
};

export const eventsVerb: Subcommand = {
  name: 'events',
  flags: listFlags,
  async run(args) {
    const { values, words } = readFlags(args, listFlags);
    const jobId = onlyWord(words, 'job');
    return showList<EventBody>(values, {
      name: 'events',
      path: `${jobPath(jobId)}/events`,
      none: 'No events.',
      table: (rows) => fittedTable(eventColumns, rows),
    });
  },
};

const eventColumns: readonly Column<EventBody>[] = [
  { heading: 'TIME', of: ({ ts }) => stamp(ts) },
  { heading: 'AGE', of: ({ ts }) => age(ts), rank: 4 },
  { heading: 'TYPE', of: ({ type }) => type },
  { heading: 'BY', of: ({ data }) => data.by, atLeast: 8, rank: 2 },
  { heading: 'TO', of: ({ data }) => data.to, style: ({ data }) => styleOf(String(data.to)), rank: 3 },
  { heading: 'LEASE', of: ({ lease_id }) => lease_id, rank: 5 },
  { heading: 'MORE', of: ({ data }) => moreOf(data), wraps: true, atLeast: 20 },
];

const moreOf = ({ by: _by, from: _from, to: _to, ...more }: EventBody['data']): string =>
  Object.entries(more)
    .map(([name, value]) => `${name}=${sentence(cell(value))}`)
    .join(' ');

const jobPath = (jobId: string): string => `/api/scheduler/jobs/${encodeURIComponent(jobId)}`;
