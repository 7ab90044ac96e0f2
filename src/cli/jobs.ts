import { userInfo } from 'node:os';
import { readFlags, UsageError } from './args.ts';
import type { Command } from './commands.ts';
import { ServerClient, ServerError, urlHelp } from './server-client.ts';

const flags = {
  'dead-letters': 'boolean',
  stream: 'string',
  'addon-id': 'string',
  'job-type': 'string',
  'error-code': 'string',
  limit: 'string',
  reason: 'string',
  'requested-by': 'string',
  json: 'boolean',
  url: 'string',
} as const;

/** Which flags choose dead letters, and the fields that they stand for. */
const filters = {
  stream: 'stream',
  'addon-id': 'addon_id',
  'job-type': 'job_type',
  'error-code': 'error_code',
} as const;

/** Dead letters of one request: the server takes no more. */
const pageMax = 500;

interface Outcome {
  jobIds: string[];
  failed: { job_id: string; code: string | null; detail: string }[];
}

export const jobsCommand: Command = {
  name: 'jobs',
  help: () => `Usage: leasehold jobs retry <job_id>... [flags]
       leasehold jobs retry --dead-letters [flags]

Puts jobs that FAILED, TIMED OUT or were CANCELED back into the queue, each at its old place in line and with a new
budget of attempts: those that are named, or the dead letters of streams, the oldest first.

  --dead-letters        Dead letters, all of them unless these say which:
  --stream <name>         of this stream
  --addon-id <name>       of this submitter
  --job-type <name>       of this kind
  --error-code <code>     whose last error has this code
  --limit <n>             so many at the most
  --reason <text>       Why, for the history.
  --requested-by <who>  Who asks, for the history; the name of the user where left out.
  --json                Answer with one line of JSON: {retried, job_ids, failed}.
${urlHelp}

Ends with 1 where a job could not be retried; the others were.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, flags);
    if (help) {
      process.stdout.write(this.help());
      return 0;
    }
    const [verb, ...jobIds] = words;
    if (verb !== 'retry') {
      throw new UsageError(verb === undefined ? 'says nothing to do' : `jobs cannot ${JSON.stringify(verb)}`);
    }
    const by = { reason: values.reason, requested_by: values['requested-by'] ?? userName() };
    const server = new ServerClient(values.url);
    const chosen = Object.entries(filters).flatMap(([flag, field]) => {
      const value = values[flag as keyof typeof filters];
      return value === undefined ? [] : [[field, value]];
    });
    try {
      if (values['dead-letters']) {
        if (jobIds.length > 0) throw new UsageError('takes either jobs or --dead-letters');
        const limit = limitOf(values.limit);
        const outcome = await retryDeadLetters(server, { ...Object.fromEntries(chosen), ...by }, limit);
        return report(outcome, values.json === true);
      }
      if (jobIds.length === 0) throw new UsageError('names no job, and no --dead-letters');
      if (chosen.length > 0 || values.limit !== undefined) {
        throw new UsageError('chooses among --dead-letters only');
      }
      return report(await retryEach(server, jobIds, by), values.json === true);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      process.stderr.write(`leasehold: ${error.message}\n`);
      return 1;
    }
  },
};

/** Where a process has no name to its user's number, the environment may know one; else the server tells the address. */
function userName(): string | undefined {
  try {
    return userInfo().username;
  } catch {
    return process.env.USER || undefined;
  }
}

function limitOf(text: string | undefined): number {
  if (text === undefined) return Number.POSITIVE_INFINITY;
  const limit = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (limit < 1) throw new UsageError(`--limit must be a whole number from 1, not ${JSON.stringify(text)}`);
  return limit;
}

async function retryEach(server: ServerClient, jobIds: readonly string[], by: object): Promise<Outcome> {
  const outcome: Outcome = { jobIds: [], failed: [] };
  for (const jobId of jobIds) {
    try {
      await server.post(`/api/scheduler/jobs/${encodeURIComponent(jobId)}/retry`, by);
      outcome.jobIds.push(jobId);
    } catch (error) {
      // A server that is not there would say so again for every job that is left.
      if (!(error instanceof ServerError) || error.code === undefined) throw error;
      outcome.failed.push({ job_id: jobId, code: error.code, detail: error.message });
    }
  }
  return outcome;
}

async function retryDeadLetters(server: ServerClient, filter: object, limit: number): Promise<Outcome> {
  const retried = new Set<string>();
  while (retried.size < limit) {
    const wanted = Math.min(limit - retried.size, pageMax);
    const body = { ...filter, limit: wanted };
    const { job_ids } = await server.post<{ job_ids: string[] }>('/api/scheduler/jobs/retry', body);
    const before = retried.size;
    for (const jobId of job_ids) retried.add(jobId);
    // A job that is a dead letter again already would come round for ever.
    if (job_ids.length < wanted || retried.size < before + job_ids.length) break;
  }
  return { jobIds: [...retried], failed: [] };
}

function report({ jobIds, failed }: Outcome, asJson: boolean): number {
  for (const { job_id, detail } of failed) process.stderr.write(`leasehold: ${job_id}: ${detail}\n`);
  if (asJson) {
    process.stdout.write(`${JSON.stringify({ retried: jobIds.length, job_ids: jobIds, failed })}\n`);
  } else {
    for (const jobId of jobIds) process.stdout.write(`${jobId}\n`);
    process.stdout.write(`${jobIds.length === 1 ? '1 job' : `${jobIds.length} jobs`} retried\n`);
  }
  return failed.length === 0 ? 0 : 1;
}
