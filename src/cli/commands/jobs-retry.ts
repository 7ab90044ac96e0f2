import { type HttpClient, ServerError } from '../../client/http-client.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { commonFlags, refusal, userName, wholeFlag, withServer } from '../support/operator-client.ts';
import { printNote } from '../support/output.ts';
import { printToStderr } from '../support/stderr.ts';
import type { Subcommand } from '../support/subcommands.ts';

const by = { reason: 'string', 'requested-by': 'string' } as const;

const cancelFlags = { ...by, ...commonFlags } as const;

const retryFlags = {
  'dead-letters': 'boolean',
  stream: 'string',
  'addon-id': 'string',
  'job-type': 'string',
  'error-code': 'string',
  limit: 'string',
  ...cancelFlags,
} as const;

/** Flags that select dead letters, and the request fields that they set. */
const filters = {
  stream: 'stream',
  'addon-id': 'addon_id',
  'job-type': 'job_type',
  'error-code': 'error_code',
} as const;

/** The most dead letters that the server retries per request. */
const pageMax = 500;

interface Outcome {
  jobIds: string[];
  failed: { job_id: string; code: string | null; detail: string }[];
}

export const retryVerb: Subcommand = {
  name: 'retry',
  flags: retryFlags,
  async run(args) {
    const { values, words: jobIds } = readFlags(args, retryFlags);
    const who = { reason: values.reason, requested_by: values['requested-by'] ?? userName() };
    const chosen = Object.entries(filters).flatMap(([flag, field]) => {
      const value = values[flag as keyof typeof filters];
      return value === undefined ? [] : [[field, value]];
    });
    return withServer(values.url, async (server) => {
      if (values['dead-letters']) {
        if (jobIds.length > 0) throw new UsageError('takes either jobs or --dead-letters');
        const limit = wholeFlag('limit', values.limit, 1) ?? Number.POSITIVE_INFINITY;
        const outcome = await retryDeadLetters(server, { ...Object.fromEntries(chosen), ...who }, limit);
        return report('retried', outcome, values.json === true);
      }
      if (jobIds.length === 0) throw new UsageError('names no job, and no --dead-letters');
      if (chosen.length > 0 || values.limit !== undefined) {
        throw new UsageError('chooses among --dead-letters only');
      }
      return report('retried', await changeEach(server, jobIds, 'retry', who), values.json === true);
    });
  },
};

export const cancelVerb: Subcommand = {
  name: 'cancel',
  flags: cancelFlags,
  async run(args) {
    const { values, words: jobIds } = readFlags(args, cancelFlags);
    if (jobIds.length === 0) throw new UsageError('names no job');
    const who = { reason: values.reason, requested_by: values['requested-by'] ?? userName() };
    return withServer(values.url, async (server) =>
      report('canceled', await changeEach(server, jobIds, 'cancel', who), values.json === true),
    );
  },
};

async function changeEach(
  server: HttpClient,
  jobIds: readonly string[],
  change: 'retry' | 'cancel',
  by: object,
): Promise<Outcome> {
  const outcome: Outcome = { jobIds: [], failed: [] };
  for (const jobId of jobIds) {
    try {
      await server.post(`/api/scheduler/jobs/${encodeURIComponent(jobId)}/${change}`, by);
      outcome.jobIds.push(jobId);
    } catch (error) {
      // An unreachable server would cause the same error for every remaining job.
      if (!(error instanceof ServerError) || error.code === undefined) throw error;
      printToStderr(`${jobId}: ${refusal(error)}`);
      outcome.failed.push({ job_id: jobId, code: error.code, detail: error.message });
    }
  }
  return outcome;
}

async function retryDeadLetters(server: HttpClient, filter: object, limit: number): Promise<Outcome> {
  const retried = new Set<string>();
  while (retried.size < limit) {
    const wanted = Math.min(limit - retried.size, pageMax);
    const body = { ...filter, limit: wanted };
    const { job_ids } = await server.post<{ job_ids: string[] }>('/api/scheduler/jobs/retry', body);
    const before = retried.size;
    for (const jobId of job_ids) retried.add(jobId);
    // Stops if a retried job has become a dead letter again, because it would be retried for ever.
    if (job_ids.length < wanted || retried.size < before + job_ids.length) break;
  }
  return { jobIds: [...retried], failed: [] };
}

function report(done: string, { jobIds, failed }: Outcome, asJson: boolean): number {
  if (asJson) {
    printNote(JSON.stringify({ [done]: jobIds.length, job_ids: jobIds, failed }));
  } else {
    for (const jobId of jobIds) printNote(jobId);
    printNote(`${jobIds.length === 1 ? '1 job' : `${jobIds.length} jobs`} ${done}`);
  }
  return failed.length === 0 ? 0 : 1;
}
