import { HttpClient, ServerError, urlHelp } from '../../client/http-client.ts';
import { clockFinding, type Finding, finding, findingLevels, worstOf } from '../../domain/doctor/finding.ts';
import { counted } from '../../domain/explain/text.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { painted, styleOf } from '../support/color.ts';
import { commonFlags } from '../support/operator-client.ts';
import { blank, plain, print, printHelp, printJson, sentence } from '../support/output.ts';
import { type Column, fittedTable } from '../support/table.ts';

/**
 * The server has its own timeouts for its database and its Redis; this one is for a server that hangs itself.
 */
const answerLimitMs = 10_000;

interface DiagnosisBody {
  ts: string;
  version: string;
  findings: Finding[];
}

export const doctorCommand: Command = {
  name: 'doctor',
  flags: commonFlags,
  help: () => `Usage: leasehold doctor [flags]

Examines a server, its database, its queue and its Redis, and prints each finding
with its remedy: settings that may lose acknowledged writes, dead rows and the
transactions that keep them, clocks that differ, migrations, connections,
capacity, jobs that cannot start, dead letters, silent leases. It changes
nothing.

  --json                Print one line of JSON: {ts, version, level, findings}.
${urlHelp}

Exits with 1 if there is a problem or no server, and with 0 if there are only
warnings, or none.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, commonFlags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    const { ts, version, findings } = await examine(new HttpClient(values.url, { timeoutMs: answerLimitMs }));
    const level = worstOf(findings);
    if (values.json) printJson({ ts, version, level, findings });
    else print(findingsText(findings));
    return level === 'PROBLEM' ? 1 : 0;
  },
};

async function examine(
  server: HttpClient,
): Promise<{ ts: string | null; version: string | null; findings: Finding[] }> {
  const begun = performance.now();
  const beganAtMs = Date.now();
  let diagnosis: DiagnosisBody;
  try {
    diagnosis = await server.get<DiagnosisBody>('/api/system/doctor');
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    const advice = 'start it, or say with --url or LEASEHOLD_URL where it is';
    const away = finding('server', 'server_reachable', 'PROBLEM', error.message, advice, {
      code: error.code ?? null,
    });
    return { ts: null, version: null, findings: [away] };
  }
  const tookMs = performance.now() - begun;
  const clock = clockFinding(
    { aheadMs: Date.parse(diagnosis.ts) - (beganAtMs + tookMs / 2), uncertainMs: tookMs / 2 },
    { area: 'server', code: 'client_clock_difference', ours: 'this machine', theirs: 'the server' },
  );
  const reachable = finding('server', 'server_reachable', 'OK', `a server answers at ${server.url}`);
  const findings = [reachable, await readiness(server), clock, ...diagnosis.findings];
  return { ts: diagnosis.ts, version: diagnosis.version, findings };
}

async function readiness(server: HttpClient): Promise<Finding> {
  const { status, said } = await server.look('/readyz').catch((error: unknown) => {
    if (!(error instanceof ServerError)) throw error;
    return { status: 0, said: error.message };
  });
  const advice = 'not all calls are served meanwhile; see the findings about the database';
  const text = status === 200 ? 'it is ready to serve' : `it is not ready: ${plain(readinessWords(said))}`;
  return finding('server', 'ready', status === 200 ? 'OK' : 'PROBLEM', text, advice, { status });
}

/** The answer of `/readyz` in words. An unexpected answer is shown unchanged. */
function readinessWords(said: string): string {
  let parts: Record<string, unknown>;
  try {
    parts = JSON.parse(said) as Record<string, unknown>;
  } catch {
    return said;
  }
  const { status, reason, ...others } = parts;
  if (typeof status !== 'string') return said;
  const words = Object.entries(others).map(([part, state]) => `${part} ${state}`);
  const why = status === 'stopping' ? 'the server is stopping' : (reason ?? 'it cannot serve');
  return [why, ...words].join(', ');
}

/** The worst findings come first, each with its advice below it. */
function findingsText(findings: readonly Finding[]): string {
  const worst = findings.toSorted((a, b) => findingLevels.indexOf(b.level) - findingLevels.indexOf(a.level));
  const lines = worst.flatMap(({ level, code, text, advice }): Line[] => [
    { level, code, text: sentence(text) },
    ...(advice === null ? [] : [{ text: `→ ${sentence(advice)}` }]),
  ]);
  const count = (level: string) => findings.filter((each) => each.level === level).length;
  const sum = [counted(count('PROBLEM'), 'problem'), counted(count('WARN'), 'warning'), `${count('OK')} OK`];
  return `${fittedTable(columns, lines, { headings: false })}\n\n${painted(sum.join(', '), 'bold')}`;
}

interface Line {
  level?: string;
  code?: string;
  text: string;
}

const columns: readonly Column<Line>[] = [
  { heading: 'LEVEL', of: ({ level }) => level ?? blank, style: ({ level }) => styleOf(level ?? '') },
  { heading: 'CODE', of: ({ code }) => code ?? blank, rank: 1 },
  { heading: 'FINDING', of: ({ text }) => text, wraps: true, atLeast: 24 },
];
