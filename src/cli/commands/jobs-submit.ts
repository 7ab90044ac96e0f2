import { text } from 'node:stream/consumers';
import { type FieldKind, type JobBody, submittedFieldList } from '../../domain/jobs/job-fields.ts';
import { type FlagTypes, readFlags, UsageError } from '../support/args.ts';
import { commonFlags, wholeFlag, withServer } from '../support/operator-client.ts';
import { print, printJson } from '../support/output.ts';
import type { Subcommand } from '../support/subcommands.ts';

/** One flag for each field that a client sets. */
const submitted = submittedFieldList.map((field) => ({ ...field, flag: field.name.replaceAll('_', '-') }));

const fieldFlags: FlagTypes = Object.fromEntries(
  submitted.map(({ flag, kind }) => [flag, kind === 'flag' ? 'boolean' : 'string']),
);
const flags = { ...fieldFlags, ...commonFlags };

export const submitVerb: Subcommand = {
  name: 'submit',
  flags,
  async run(args) {
    const { values, words } = readFlags(args, flags);
    if (words.length > 0) throw new UsageError(`submits one job, and takes no ${JSON.stringify(words[0])}`);
    const given = values as Readonly<Record<string, string | boolean | undefined>>;
    const job: Record<string, unknown> = {};
    for (const { name, flag, kind, submission } of submitted) {
      const value = given[flag];
      if (value !== undefined) job[name] = await jsonOf(flag, kind, value);
      else if (submission.isRequired) throw new UsageError(`names no --${flag}`);
    }
    return withServer(values.url, async (server) => {
      const submitted = await server.post<{ job: JobBody }>('/api/scheduler/jobs/submit', job);
      if (values.json) printJson(submitted);
      else print(submitted.job.job_id);
      return 0;
    });
  },
};

async function jsonOf(flag: string, kind: FieldKind, given: string | boolean): Promise<unknown> {
  if (typeof given === 'boolean') return given;
  switch (kind) {
    case 'whole':
      return wholeFlag(flag, given, 0);
    case 'object':
    case 'constraints':
      return documentOf(flag, given === '-' ? await text(process.stdin) : given);
    case 'labels':
      return given.split(',').filter((label) => label !== '');
    case 'priority':
      return given.toUpperCase();
    default:
      return given;
  }
}

function documentOf(flag: string, given: string): unknown {
  try {
    return JSON.parse(given);
  } catch (cause) {
    throw new UsageError(`--${flag} is no JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
}

/** Fields whose flags have lines of their own in the help. */
const described = [
  'addon_id',
  'job_type',
  'stream',
  'cost_units',
  'priority',
  'payload',
  'constraints',
  'client_request_id',
];

const placeholders: Partial<Record<FieldKind, string>> = {
  flag: '',
  labels: ' <a,b>',
  time: ' <time>',
  whole: ' <n>',
};

/** The other flags of the fields, for the help. */
export const otherFlagsHelp = (): string => {
  const words = submitted
    .filter(({ name }) => !described.includes(name))
    .map(({ flag, kind }) => `--${flag}${placeholders[kind] ?? ' <text>'}`);
  const lines: string[] = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last === undefined || last.length + word.length > helpWidth) lines.push(`  ${word}`);
    else lines[lines.length - 1] = `${last}, ${word}`;
  }
  return lines.join(',\n');
};

const helpWidth = 110;
