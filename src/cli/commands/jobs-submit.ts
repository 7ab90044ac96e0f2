import { text } from 'node:stream/consumers';
import { readFlags, UsageError } from '../support/args.ts';
import { commonFlags, wholeFlag, withServer } from '../support/operator-client.ts';
import { print, printJson } from '../support/output.ts';
import type { Subcommand } from '../support/subcommands.ts';
import type { JobBody } from './jobs-list.ts';

/** Flags and the request fields that they set. */
const texts = {
  'addon-id': 'addon_id',
  'job-type': 'job_type',
  priority: 'priority',
  'client-request-id': 'client_request_id',
  stream: 'stream',
  'run-at': 'run_at',
} as const;
const numbers = {
  'cost-units': 'cost_units',
  'max-attempts': 'max_attempts',
  'max-runtime-s': 'max_runtime_s',
  'retry-backoff-s': 'retry_backoff_s',
} as const;
const documents = { payload: 'payload', constraints: 'constraints' } as const;

const flags = {
  'addon-id': 'string',
  'job-type': 'string',
  priority: 'string',
  'client-request-id': 'string',
  stream: 'string',
  'run-at': 'string',
  'cost-units': 'string',
  'max-attempts': 'string',
  'max-runtime-s': 'string',
  'retry-backoff-s': 'string',
  payload: 'string',
  constraints: 'string',
  unique: 'boolean',
  tags: 'string',
  ...commonFlags,
} as const;

export const submitVerb: Subcommand = {
  name: 'submit',
  flags,
  async run(args) {
    const { values, words } = readFlags(args, flags);
    if (words.length > 0) throw new UsageError(`submits one job, and takes no ${JSON.stringify(words[0])}`);
    for (const flag of ['addon-id', 'job-type', 'cost-units'] as const) {
      if (values[flag] === undefined) throw new UsageError(`names no --${flag}`);
    }
    const job: Record<string, unknown> = {};
    for (const [flag, field] of entries(texts)) if (values[flag] !== undefined) job[field] = values[flag];
    for (const [flag, field] of entries(numbers)) {
      const number = wholeFlag(flag, values[flag], 0);
      if (number !== undefined) job[field] = number;
    }
    for (const [flag, field] of entries(documents)) {
      const given = values[flag];
      if (given !== undefined)
        job[field] = documentOf(flag, given === '-' ? await text(process.stdin) : given);
    }
    if (values.priority !== undefined) job.priority = values.priority.toUpperCase();
    if (values.unique) job.unique = true;
    if (values.tags !== undefined) job.tags = values.tags.split(',').filter((tag) => tag !== '');
    return withServer(values.url, async (server) => {
      const submitted = await server.post<{ job: JobBody }>('/api/scheduler/jobs/submit', job);
      if (values.json) printJson(submitted);
      else print(submitted.job.job_id);
      return 0;
    });
  },
};

const entries = <Key extends string>(of: Readonly<Record<Key, string>>): [Key, string][] =>
  Object.entries(of) as [Key, string][];

function documentOf(flag: string, given: string): unknown {
  try {
    return JSON.parse(given);
  } catch (cause) {
    throw new UsageError(`--${flag} is no JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
}
