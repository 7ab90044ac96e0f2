import { urlHelp } from '../../client/http-client.ts';
import { roles } from '../../domain/access/roles.ts';
import type { CreateKey } from '../../domain/requests/access.ts';
import { inLine } from '../../lib/terminal-text.ts';
import { type FlagTypes, readFlags, UsageError } from '../support/args.ts';
import { type KeyBody, keysOf } from '../support/key-store.ts';
import { commonFlags, onlyWord, wholeFlag } from '../support/operator-client.ts';
import { print, printJson, when } from '../support/output.ts';
import { commandOf, type Subcommand } from '../support/subcommands.ts';
import { type Column, fittedTable, listing } from '../support/table.ts';

const help = () => `Usage: leasehold keys [list] [flags]
       leasehold keys create --name <name> --role <roles> [flags]
       leasehold keys show <key-id> [flags]
       leasehold keys rotate <key-id> [flags]
       leasehold keys revoke <key-id> [flags]
       leasehold keys check [flags]

Manages the keys of callers. create and rotate print the text of the key on
standard output. It is shown this once: the server stores only a hash. check shows
the caller's own identity and permissions.

Names are separated by commas. A name that ends in * stands for all names that
begin so, and * for all.

  --name <name>        The name of the key.
  --role <roles>       What it may do: ${roles.join(', ')}.
  --addon <names>      The applications or tenants whose jobs it reaches.
  --stream <names>     The streams that it reaches.
  --type <names>       The types of jobs that it reaches.
  --repository <names> The repositories whose files it reaches.
  --worker <names>     The workers and file owners that it may act as. The default
                       is <name>, <name>-* and <name>/*; * for administrators that
                       reach everything.
  --payloads           An observer sees payloads, results and errors.
  --expires <days>d    When it expires; the default is 90d. never is for ever.
  --rate <rates>       Its own rates a second, as submit=100,read=50,burst=5: jobs
                       submitted, calls and rows read, and seconds of its rate in
                       one burst. 0 is no limit.
  --max-streams <n>    Streams that it may keep open on one server.
  --note <text>        A note for people.
  --overlap <hours>h   rotate: how long the old secret counts too; the default is
                       24h.
  --local              Act on the database itself, for the first key: DATABASE_URL,
                       or the embedded database of LEASEHOLD_DATA_DIR while no
                       server uses it.
  --json               Print one line of JSON, with the names of the API.
${urlHelp}

Exits with 1 if the server refuses the request or does not answer.
`;

const storeFlags = { ...commonFlags, local: 'boolean' } as const;

const columns: readonly Column<KeyBody>[] = [
  { heading: 'KEY', of: ({ key_id }) => key_id },
  { heading: 'NAME', of: ({ name }) => name, atLeast: 10 },
  { heading: 'ROLES', of: (key) => key.roles.join(', '), atLeast: 10 },
  { heading: 'ADDONS', of: ({ scopes }) => scopes.addon_ids.join(', '), atLeast: 6, rank: 2 },
  { heading: 'STREAMS', of: ({ scopes }) => scopes.streams.join(', '), atLeast: 6, rank: 3 },
  { heading: 'STATE', of: (key) => stateOf(key) },
  { heading: 'EXPIRES', of: (key) => expiryOf(key) },
  { heading: 'LAST USE', of: (key) => (key.last_used_at === null ? '-' : when(key.last_used_at)), rank: 1 },
];

const expiryOf = ({ expires_at }: KeyBody): string => (expires_at === null ? 'never' : when(expires_at));

const unusedMs = 90 * 86_400_000;

function stateOf({ revoked_at, expires_at, last_used_at, created_at }: KeyBody): string {
  if (revoked_at !== null) return 'revoked';
  const now = Date.now();
  if (expires_at !== null && Date.parse(expires_at) <= now) return 'expired';
  return now - Date.parse(last_used_at ?? created_at) > unusedMs ? 'unused' : 'in force';
}

const listVerb: Subcommand = {
  name: 'list',
  flags: storeFlags,
  async run(args) {
    const { values, words } = readFlags(args, storeFlags);
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    return keysOf(values, async (keys) => {
      const found = await keys.list();
      if (values.json) printJson({ keys: found });
      else print(found.length === 0 ? 'No keys.' : fittedTable(columns, found));
      return 0;
    });
  },
};

const createFlags = {
  name: 'string',
  role: 'string',
  addon: 'string',
  stream: 'string',
  type: 'string',
  repository: 'string',
  worker: 'string',
  payloads: 'boolean',
  expires: 'string',
  rate: 'string',
  'max-streams': 'string',
  note: 'string',
  ...storeFlags,
} as const satisfies FlagTypes;

const createVerb: Subcommand = {
  name: 'create',
  flags: createFlags,
  async run(args) {
    const { values, words } = readFlags(args, createFlags);
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    if (values.name === undefined) throw new UsageError('needs --name');
    if (values.role === undefined) throw new UsageError(`needs --role: ${roles.join(', ')}`);
    const command: CreateKey = {
      name: values.name,
      roles: namesIn(values.role) as CreateKey['roles'],
      scopes: {
        addon_ids: scopeIn(values.addon, values.role),
        streams: scopeIn(values.stream, values.role),
        job_types: scopeIn(values.type, values.role),
        repositories: scopeIn(values.repository, values.role),
      },
      ...(values.worker === undefined ? {} : { worker_ids: namesIn(values.worker) }),
      ...(values.payloads ? { sees_payloads: true } : {}),
      ...(values.note === undefined ? {} : { note: values.note }),
      ...limitsIn(values.rate, values['max-streams']),
      ...expiryIn(values.expires),
    };
    return keysOf(values, async (keys) => show(await keys.create(command), values.json));
  },
};

/** Administrators, operators and observers reach everything where no flag says otherwise. */
function scopeIn(flag: string | undefined, role: string): string[] {
  if (flag !== undefined) return namesIn(flag);
  return namesIn(role).some((one) => ['admin', 'operator', 'observer'].includes(one)) ? ['*'] : [];
}

const namesIn = (list: string): string[] =>
  list
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');

function expiryIn(text: string | undefined): Pick<CreateKey, 'expires_in_days' | 'never_expires'> {
  if (text === undefined) return {};
  if (text === 'never') return { never_expires: true };
  const days = wholeFlag('expires', text.replace(/d$/, ''), 1);
  return days === undefined ? {} : { expires_in_days: days };
}

const rateNames: Readonly<Record<string, 'submit_per_s' | 'read_per_s' | 'burst_s'>> = {
  submit: 'submit_per_s',
  read: 'read_per_s',
  burst: 'burst_s',
};

function limitsIn(rates: string | undefined, maxStreams: string | undefined): Pick<CreateKey, 'limits'> {
  const limits: NonNullable<CreateKey['limits']> = {};
  for (const part of namesIn(rates ?? '')) {
    const [word = '', count] = part.split('=');
    const name = Object.hasOwn(rateNames, word) ? rateNames[word] : undefined;
    if (name === undefined)
      throw new UsageError(`--rate takes submit, read and burst, not ${JSON.stringify(part)}`);
    limits[name] = wholeFlag('rate', count ?? '', name === 'burst_s' ? 1 : 0);
  }
  if (maxStreams !== undefined) limits.max_streams = wholeFlag('max-streams', maxStreams, 0);
  return Object.keys(limits).length === 0 ? {} : { limits };
}

/** The text goes to standard output alone, so that it can be piped into a file; the rest is for people. */
function show({ key, text }: { key: KeyBody; text: string }, asJson: boolean | undefined): number {
  if (asJson) printJson({ key, text });
  else {
    print(text);
    const about = `${key.name} (${key.key_id}), ${key.roles.join(', ')}, expires ${expiryOf(key)}`;
    process.stderr.write(`${inLine(about)}. This text is not shown again.\n`);
  }
  return 0;
}

const showVerb: Subcommand = {
  name: 'show',
  flags: storeFlags,
  async run(args) {
    const { values, words } = readFlags(args, storeFlags);
    const keyId = onlyWord(words, 'key id');
    return keysOf(values, async (keys) => describe(await keys.get(keyId), values.json));
  },
};

function describe(key: KeyBody, asJson: boolean | undefined): number {
  if (asJson) printJson({ key });
  else {
    const { scopes, limits, ...rest } = key;
    const facts = { ...rest, ...scopes, ...limits, state: stateOf(key) };
    print(
      listing(
        Object.entries(facts).map(([name, value]): [string, string] => [
          name,
          Array.isArray(value) ? value.join(', ') || '-' : String(value ?? '-'),
        ]),
      ),
    );
  }
  return 0;
}

const rotateFlags = { overlap: 'string', ...storeFlags } as const;

const rotateVerb: Subcommand = {
  name: 'rotate',
  flags: rotateFlags,
  async run(args) {
    const { values, words } = readFlags(args, rotateFlags);
    const keyId = onlyWord(words, 'key id');
    const hours = wholeFlag('overlap', values.overlap?.replace(/h$/, ''), 0);
    const command = hours === undefined ? {} : { overlap_s: hours * 3_600 };
    return keysOf(values, async (keys) => show(await keys.rotate(keyId, command), values.json));
  },
};

const revokeVerb: Subcommand = {
  name: 'revoke',
  flags: storeFlags,
  async run(args) {
    const { values, words } = readFlags(args, storeFlags);
    const keyId = onlyWord(words, 'key id');
    return keysOf(values, async (keys) => describe(await keys.revoke(keyId), values.json));
  },
};

const checkVerb: Subcommand = {
  name: 'check',
  flags: commonFlags,
  async run(args) {
    const { values } = readFlags(args, commonFlags);
    return keysOf(values, async (keys) => {
      const found = await keys.whoAmI();
      if (values.json) printJson(found);
      else {
        const { scopes, ...rest } = found;
        print(
          listing(
            Object.entries({ ...rest, ...scopes }).map(([name, value]): [string, string] => [
              name,
              Array.isArray(value) ? value.join(', ') || '-' : String(value ?? '-'),
            ]),
          ),
        );
      }
      return 0;
    });
  },
};

export const keysCommand = commandOf(
  'keys',
  help,
  [listVerb, createVerb, showVerb, rotateVerb, revokeVerb, checkVerb],
  listVerb,
);
