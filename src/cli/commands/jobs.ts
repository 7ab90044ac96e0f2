import { urlHelp } from '../../client/http-client.ts';
import { byHelp, exitHelp, jsonHelp, pageHelp } from '../support/operator-client.ts';
import { commandOf } from '../support/subcommands.ts';
import { eventsVerb, getVerb, listVerb } from './jobs-list.ts';
import { cancelVerb, retryVerb } from './jobs-retry.ts';
import { otherFlagsHelp, submitVerb } from './jobs-submit.ts';

const help = () => `Usage: leasehold jobs list [flags]
       leasehold jobs get <job_id> [flags]
       leasehold jobs events <job_id> [flags]
       leasehold jobs submit --addon-id <name> --job-type <name>
                             --cost-units <n> [flags]
       leasehold jobs cancel <job_id>... [flags]
       leasehold jobs retry <job_id>... [flags]
       leasehold jobs retry --dead-letters [flags]

list shows jobs, the newest first. get shows one job with its result, and events
shows its history. 'leasehold explain' shows why a job waits, or why it ended.

  --state <states>      list: only jobs in these states, separated by commas.
  --addon-id <name>     list, retry: only jobs of this submitter; submit: the
                        submitter.
  --job-type <name>     list, retry: only jobs of this type; submit: the type.
  --stream <name>       list, retry: only jobs of this stream; submit: the stream.
  --dead-letters        list, retry: only dead letters.
  --oldest              list: the oldest first.
  --created-after <time>, --created-before <time>
                        list: only jobs submitted in this time, such as
                        2025-12-28T20:15:00Z.
${pageHelp}

submit creates a job and prints its id:
  --cost-units <n>      Units of capacity that its lease uses.
  --priority <level>    LOW, NORMAL, HIGH or URGENT.
  --payload <json>      A JSON object for the worker; - reads it from standard
                        input.
  --constraints <json>  The capabilities that the worker must have, as a JSON
                        object; - reads it from standard input.
  --client-request-id <id>
                        Makes the request safe to repeat: a second job of this
                        submitter with the same id is refused.
${otherFlagsHelp()}
                        Fields of the job, as in the API.

cancel ends jobs without a worker, and asks the workers of the other jobs to
stop.
retry requeues jobs that are FAILED, TIMEOUT or CANCELED, with their old position
and a new budget of attempts: the given jobs, or the dead letters of streams, the
oldest first.
  --error-code <code>   retry: only dead letters whose last error has this code.
  --limit <n>           retry: the most dead letters; the default is all.
${byHelp}

${jsonHelp}
                        cancel and retry: {canceled | retried, job_ids, failed}.
${urlHelp}

${exitHelp}
cancel and retry exit with 1 if one of the jobs could not be changed; the others
were changed.
`;

export const jobsCommand = commandOf('jobs', help, [
  listVerb,
  getVerb,
  eventsVerb,
  submitVerb,
  cancelVerb,
  retryVerb,
]);
