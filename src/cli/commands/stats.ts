import { setTimeout as delay } from 'node:timers/promises';
import { type HttpClient, ServerError, urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { commonFlags, exitHelp, jsonHelp, queryOf, refusal, withServer } from '../support/operator-client.ts';
import { draw, lineWidth, plain, print, printHelp, printJson, safe } from '../support/output.ts';
import { printToStderr } from '../support/stderr.ts';
import { listing } from '../support/table.ts';

const flags = { watch: 'boolean', 'addon-id': 'string', ...commonFlags } as const;

const watchMs = 1_000;

/** Groups of figures, as the API returns them. A newer server may return more than this version knows. */
type Snapshot = Record<string, unknown>;

/** The figures shown, in this order, and their names. */
const shown: readonly (readonly [group: string, figures: readonly string[]])[] = [
  ['capacity', ['total', 'usable', 'used', 'reserved']],
  ['jobs', ['queued', 'running', 'failed_last_24h']],
  ['leases', ['active', 'expired_last_24h']],
];

export const statsCommand: Command = {
  name: 'stats',
  flags,
  help: () => `Usage: leasehold stats [flags]

Shows the figures of the capacity, the jobs and the leases.

  --addon-id <name>     Only those of this submitter.
  --watch               Repeat every second until it is stopped: in place on a
                        terminal, otherwise one line each time.
${jsonHelp}
                        With --watch, one line each second.
${urlHelp}

${exitHelp}
With --watch, only the first request ends it; later errors are printed.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, flags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    const path = `/api/scheduler/stats/snapshot${queryOf({ addon_id: values['addon-id'] })}`;
    const read = (server: HttpClient) => server.get<Snapshot>(path);
    return withServer(values.url, async (server) => {
      const first = await read(server);
      if (values.watch) return watch(first, () => read(server), values.json === true);
      if (values.json) printJson(first);
      else print(overview(first));
      return 0;
    });
  },
};

/** Runs until it gets a signal, or until the reader closes the pipe. */
async function watch(first: Snapshot, read: () => Promise<Snapshot>, asJson: boolean): Promise<number> {
  const stopping = new AbortController();
  const { signal } = stopping;
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => stopping.abort());
  const inPlace = process.stdout.isTTY && !asJson;
  let drawn = 0;
  const redraw = (text: string) => {
    // Moves to the start of the previous output and clears everything below.
    draw(`${drawn === 0 ? '' : `\u001b[${drawn}A\u001b[J`}${safe(text)}`);
    drawn = text.split('\n').length;
  };
  let snapshot: Snapshot | undefined = first;
  for (;;) {
    const now = `${new Date().toISOString().slice(0, 19)}Z`;
    if (snapshot && asJson) printJson(snapshot);
    else if (snapshot && inPlace) redraw(`${overview(snapshot)}\n\n${now}`);
    else if (snapshot) print(line(snapshot, now));
    await delay(watchMs, undefined, { signal }).catch(() => {});
    if (signal.aborted) return 0;
    try {
      snapshot = await read();
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      snapshot = undefined;
      if (inPlace) redraw(`${now}  ${refusal(error)}`.slice(0, lineWidth()));
      else printToStderr(refusal(error));
    }
  }
}

/** The figures of a group: the known ones first, then all others. */
function figuresOf(snapshot: Snapshot, group: string, known: readonly string[]): [string, unknown][] {
  const found = snapshot[group];
  if (typeof found !== 'object' || found === null) return [];
  const others = Object.keys(found).filter((name) => !known.includes(name));
  return [...known, ...others].flatMap((name): [string, unknown][] => {
    const value = (found as Record<string, unknown>)[name];
    return typeof value === 'number' || typeof value === 'string' ? [[name, value]] : [];
  });
}

const overview = (snapshot: Snapshot): string =>
  listing(
    shown.map(([group, known]) => {
      const figures = figuresOf(snapshot, group, known);
      return [group, figures.map(([name, value]) => `${name.replaceAll('_', ' ')} ${value}`).join(', ')];
    }),
  );

const line = (snapshot: Snapshot, now: string): string => {
  const figures = shown.flatMap(([group, known]) =>
    figuresOf(snapshot, group, known).map(([name, value]) => `${group}.${name}=${value}`),
  );
  return plain([now, ...figures].join(' '));
};
