import { existsSync } from 'node:fs';
import { userInfo } from 'node:os';
import { locate, PathError, repositoryOf } from '../../agent/file-key.ts';
import {
  type Blocked,
  type Contention,
  type FileLease,
  FilesClient,
  type Instructed,
  type Instruction,
  instructions,
} from '../../agent/files-client.ts';
import { guardCodes, ownerVariable } from '../../agent/guard.ts';
import { haltedWords, ownerName, shown } from '../../agent/messages.ts';
import { ServerError, urlHelp } from '../../client/http-client.ts';
import { span } from '../../domain/time.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { byHelp, exitHelp, refusal } from '../support/operator-client.ts';
import { age, paragraph, print, printHelp, printJson, printNote, stamp } from '../support/output.ts';
import { printToStderr } from '../support/stderr.ts';
import { type Column, fittedTable } from '../support/table.ts';

const flags = {
  repository: 'string',
  owner: 'string',
  reason: 'string',
  'requested-by': 'string',
  json: 'boolean',
  url: 'string',
} as const;

const answerLimitMs = 10_000;

export const filesCommand: Command = {
  name: 'files',
  flags,
  verbs: [
    { name: 'instruct', flags },
    { name: 'release', flags },
  ],
  help: () => `Usage: leasehold files [flags]
       leasehold files instruct <contention_id> RETRY|ABANDON|FORCE_RELEASE [flags]
       leasehold files release <path>... --owner <id> [flags]

Shows which owner holds which files, which owners wait for a file and until when,
and which are halted.

instruct decides a halt:
  RETRY          decide the request again, now
  ABANDON        close it; the owner's next request for the files is a first one
  FORCE_RELEASE  revoke the files, and give them to the halted owner
A halt of an owner that is not alive, such as one whose guard has exited, is not
decided now: RETRY and FORCE_RELEASE are stored, and applied to its next request.
A halt stays in the list until an operator instructs it.
release releases files of an owner that does not do so itself, as if it had ended
its work on them. Files that a sub-agent has borrowed return to its parent.

  --repository <dir>    Only this repository: a directory in it, or its name.
  --owner <id>          Only this owner; release: the owner of the files. The
                        default is ${ownerVariable}.
${byHelp}
  --json                Print one line of JSON: {leases, blockers}, or the answer
                        of the server.
${urlHelp}

${exitHelp}
instruct exits with ${guardCodes.halted} if the request is still halted.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, flags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    const api = new FilesClient(values.url, { timeoutMs: answerLimitMs });
    const asJson = values.json === true;
    const [verb, ...rest] = words;
    try {
      switch (verb) {
        case undefined:
          return await list(api, { repository: nameOf(values.repository), owner_id: values.owner }, asJson);
        case 'instruct': {
          const requested_by = values['requested-by'] ?? userInfo().username;
          const { reason } = values;
          return await instruct(
            api,
            rest,
            { requested_by, ...(reason === undefined ? {} : { reason }) },
            asJson,
          );
        }
        case 'release':
          return await release(api, rest, values.owner || process.env[ownerVariable], asJson);
        default:
          throw new UsageError(
            `files has no command ${JSON.stringify(verb)}; its commands are instruct, release`,
          );
      }
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      printToStderr(refusal(error));
      return 1;
    }
  },
};

/** A directory stands for its repository; any other text is taken for a repository's name. */
function nameOf(repository: string | undefined): string | undefined {
  if (repository === undefined || !existsSync(repository)) return repository;
  return repositoryOf(repository) ?? repository;
}

async function list(
  api: FilesClient,
  filter: Parameters<FilesClient['leases']>[0],
  asJson: boolean,
): Promise<number> {
  const [leases, blockers] = await Promise.all([api.leases(filter), api.blockers(filter)]);
  if (asJson) printJson({ leases, blockers });
  else print(overview(leases, blockers));
  return 0;
}

/** For people: the held files first, then the waiting requests, then the halted ones. */
function overview(leases: readonly FileLease[], blockers: readonly Blocked[]): string {
  const waiting = blockers.flatMap((each) => (each.state === 'CONTENDED' ? [each] : []));
  const halted = blockers.flatMap((each) => (each.state === 'HALTED' ? [each] : []));
  const parts = [
    leases.length === 0 ? 'No file is leased.' : fittedTable(leaseColumns, leases),
    ...(waiting.length === 0 ? [] : [fittedTable(waitingColumns, waiting)]),
    ...halted.map((report) => paragraph(haltedWords(report))),
  ];
  return parts.join('\n\n');
}

const leaseColumns: readonly Column<FileLease>[] = [
  { heading: 'FILE', of: ({ path }) => shown(path), wraps: true, atLeast: 36 },
  { heading: 'REPOSITORY', of: ({ repository }) => shown(repository), atLeast: 16, rank: 2 },
  { heading: 'OWNER', of: ({ owner_id, owner }) => ownerName(owner_id, owner), atLeast: 12 },
  { heading: 'SINCE', of: ({ acquired_at }) => stamp(acquired_at), rank: 1 },
  { heading: 'HEARTBEAT', of: ({ last_heartbeat_at }) => age(last_heartbeat_at), rank: 3 },
];

const waitingColumns: readonly Column<Contention>[] = [
  { heading: 'WAITS FOR', of: ({ paths }) => some(paths), wraps: true, atLeast: 20 },
  { heading: 'REPOSITORY', of: ({ repository }) => shown(repository), atLeast: 12, rank: 4 },
  { heading: 'OWNER', of: ({ owner_id }) => shown(owner_id), atLeast: 12 },
  { heading: 'RETRY', of: ({ retry_after_ms }) => `in ${span(retry_after_ms)}`, rank: 3 },
  {
    heading: 'HELD BY',
    of: ({ blockers }) => some([...new Set(blockers.map((blocker) => blocker.owner_id))]),
    atLeast: 12,
    rank: 2,
  },
  { heading: 'CONTENTION', of: ({ contention_id }) => contention_id, rank: 1 },
];

/** A request may be for thousands of files. `--json` prints all of them. */
const someMax = 3;
const some = (names: readonly string[]): string => {
  const more = names.length - someMax;
  const first = names.slice(0, someMax).map(shown).join(', ');
  return more > 0 ? `${first} and ${more.toLocaleString('en')} more` : first;
};

async function instruct(
  api: FilesClient,
  [contentionId, word, ...others]: readonly string[],
  by: { reason?: string; requested_by: string },
  asJson: boolean,
): Promise<number> {
  if (contentionId === undefined) throw new UsageError('names no contention');
  const instruction = instructions.find((each) => each === word?.toUpperCase());
  if (instruction === undefined || others.length > 0) {
    throw new UsageError(`takes one instruction: ${instructions.join(', ')}`);
  }
  const answer = await api.instruct(contentionId, { instruction, ...by });
  printNote(asJson ? JSON.stringify(answer) : instructedWords(answer, instruction));
  return answer.outcome === 'halted' ? guardCodes.halted : 0;
}

function instructedWords(answer: Instructed, instruction: Instruction): string {
  switch (answer.outcome) {
    case 'granted':
      return answer.leases
        .map(({ path, owner_id }) => `${shown(path)} belongs to ${shown(owner_id)} now`)
        .join('\n');
    case 'kept':
      return `${answer.contention_id}: its owner is not alive; ${instruction} is kept, and applied when it asks again`;
    case 'abandoned':
      return `${answer.contention_id} is closed`;
    case 'halted':
      return `${instruction} was applied, and it is still halted\n${haltedWords(answer.blocker_report)}`;
  }
}

async function release(
  api: FilesClient,
  words: readonly string[],
  ownerId: string | undefined,
  asJson: boolean,
): Promise<number> {
  if (words.length === 0) throw new UsageError('names no file');
  if (!ownerId) throw new UsageError(`names no --owner, and ${ownerVariable} is not set`);
  const keys = words.map((word) => {
    try {
      return locate(word);
    } catch (error) {
      if (error instanceof PathError) throw new UsageError(error.message);
      throw error;
    }
  });
  const held = await api.leases({ owner_id: ownerId });
  const ours = held.filter((lease) =>
    keys.some(({ repository, path }) => lease.repository === repository && lease.path === path),
  );
  const notHeld = keys.filter(
    ({ repository, path }) => !ours.some((lease) => lease.repository === repository && lease.path === path),
  );
  const { released, not_released } = await api.release(ownerId, ours, 'ENDED');
  for (const { path } of notHeld) printToStderr(`${shown(path)} is not held by ${ownerId}`);
  for (const { path, detail } of not_released) printToStderr(`${shown(path)}: ${shown(detail)}`);
  if (asJson) printNote(JSON.stringify({ released }));
  else for (const { path } of released) printNote(`${shown(path)} is free`);
  return notHeld.length + not_released.length === 0 ? 0 : 1;
}
