import { urlHelp } from '../../client/http-client.ts';
import { pageHelp } from '../support/operator-client.ts';
import { commandOf } from '../support/subcommands.ts';
import { eventsVerb, getVerb, listVerb } from './jobs-list.ts';
import { cancelVerb, retryVerb } from './jobs-retry.ts';
import { otherFlagsHelp, submitVerb } from './jobs-submit.ts';

const help = () => `Usage: leasehold jobs list [flags]
       leasehold jobs get <job_id> [flags]
       leasehold jobs events <job_id> [flags]
       leasehold jobs submit --addon-id <name> --job-type <name> --cost-units <n> [flags]
       leasehold jobs cancel <job_id>... [flags]
       leasehold jobs retry <job_id>... [flags]
       leasehold jobs retry --dead-letters [flags]

list shows jobs, the newest first, or with --oldest the oldest first; get shows one with its result, events what
happened to it. 'leasehold explain' says what it waits for, or why it ended.

  --state <states>      list: only jobs in these states, parted by commas.
  --addon-id <name>     list, retry: only jobs of this submitter; submit: who submits.
  --job-type <name>     list, retry: only jobs of this kind; submit: what kind it is.
  --stream <name>       list, retry: only jobs of this stream; submit: the stream it is for.
  --dead-letters        list, retry: dead letters.
  --oldest              list: the oldest first.
  --created-after <time>, --created-before <time>
                        list: only jobs that were submitted then, such as 2025-12-28T20:15:00Z.
${pageHelp}

submit makes a job, and prints its id:
  --cost-units <n>      Units of capacity that its lease uses.
  --priority <word>     LOW, NORMAL, HIGH or URGENT.
  --payload <json>      A JSON object passed to the worker; - reads it from the standard input.
  --constraints <json>  What its worker must have, a JSON object; - reads it from the standard input.
  --client-request-id <id>
                        Makes it safe to ask again: a second job of this submitter with the same id is refused.
${otherFlagsHelp()}

cancel ends jobs that nobody runs, and asks the workers of the others to stop.
retry puts jobs that FAILED, TIMED OUT or were CANCELED back into the queue, each at its old place in line and with a new
budget of attempts: those that are named, or the dead letters of streams, the oldest first.
  --error-code <code>   retry: only dead letters whose last error has this code.
  --limit <n>           retry: so many dead letters at the most; all where left out.
  --reason <text>       Why, for the history.
  --requested-by <who>  Who asks, for the history; the name of the user where left out.

  --json                Answer with one line of JSON, in the words of the API; of cancel and retry
                        {canceled | retried, job_ids, failed}.
${urlHelp}

Ends with 1 where the server refuses or does not answer; of cancel and retry, where one job could not be changed, the
others were.
`;

export const jobsCommand = commandOf('jobs', help, [
  listVerb,
  getVerb,
  eventsVerb,
  submitVerb,
  cancelVerb,
  retryVerb,
]);
