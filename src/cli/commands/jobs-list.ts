import type { JobBody } from '../../domain/jobs/job-fields.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { commonFlags, listFlags, onlyWord, withServer } from '../support/operator-client.ts';
import { age, cell, listing, print, printJson, stamp, table, when } from '../support/output.ts';
import { showList } from '../support/pages.ts';
import type { Subcommand } from '../support/subcommands.ts';

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
      table: jobsTable,
    });
  },
};

const jobsTable = (jobs: readonly JobBody[]): string =>
  table(
    [
      'JOB',
      'STATE',
      'PRIORITY',
      'UNITS',
      'TYPE',
      'ADDON',
      'STREAM',
      'ATTEMPTS',
      'WORKER',
      'SUBMITTED',
      'CHANGED',
    ],
    jobs.map((job) => [
      job.job_id,
      stateWords(job),
      job.priority,
      job.cost_units,
      job.job_type,
      job.addon_id,
      job.stream,
      `${job.attempts}/${job.max_attempts}`,
      job.claimed_by,
      stamp(job.created_at),
      age(job.updated_at),
    ]),
  );

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
        print(listing(entries.map(([name, value]) => [name, valueWords(value)])));
      }
      return 0;
    });
  },
};

const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;

/** The value unchanged; a time with its distance from now. */
export const valueWords = (value: unknown): string =>
  typeof value === 'string' && isTime.test(value) ? when(value) : cell(value);

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
      table: eventsTable,
    });
  },
};

const eventsTable = (events: readonly EventBody[]): string =>
  table(
    ['TIME', 'TYPE', 'BY', 'TO', 'LEASE', 'MORE'],
    events.map(({ ts, type, lease_id, data: { by, from: _, to, ...more } }) => [
      when(ts),
      type,
      by,
      to,
      lease_id,
      Object.entries(more)
        .map(([name, value]) => `${name}=${cell(value)}`)
        .join(' '),
    ]),
  );

const jobPath = (jobId: string): string => `/api/scheduler/jobs/${encodeURIComponent(jobId)}`;
