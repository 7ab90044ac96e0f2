/**
 * Colours of the commands' output: on a terminal only, unless `--color` or `FORCE_COLOR` says otherwise.
 * Lines of JSON are never coloured.
 */
export const colorModes = ['auto', 'always', 'never'] as const;
type ColorMode = (typeof colorModes)[number];

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const;
export type Style = keyof typeof codes;

/** The only control sequences that output may contain. */
const ownSequence = new RegExp(`(\u001b\\[(?:0|${Object.values(codes).join('|')})m)`);

let mode: ColorMode = 'auto';

/** Sets what `--color` says, for this process. */
export function setColorMode(chosen: ColorMode): void {
  mode = chosen;
}

/** `--color` decides, then `FORCE_COLOR` as in Node.js, then `NO_COLOR`, then whether it is a terminal. */
export function usesColor(
  { isTTY }: { isTTY?: boolean } = process.stdout,
  { FORCE_COLOR: force, NO_COLOR: no, TERM: term }: NodeJS.ProcessEnv = process.env,
  chosen = mode,
): boolean {
  if (chosen !== 'auto') return chosen === 'always';
  if (force !== undefined) return force !== '0' && force !== 'false';
  if (no) return false;
  return isTTY === true && term !== 'dumb';
}

export const painted = (text: string, style: Style | undefined, on = usesColor()): string =>
  on && style !== undefined && text !== '' ? `\u001b[${codes[style]}m${text}\u001b[0m` : text;

/** Changes the parts of a text that are not control sequences of `painted`. */
export const betweenColors = (text: string, change: (part: string) => string): string =>
  text
    .split(ownSequence)
    .map((part, i) => (i % 2 === 1 ? part : change(part)))
    .join('');

const stateStyles: Readonly<Record<string, Style>> = {
  QUEUED: 'yellow',
  CLAIMED: 'yellow',
  PREPARING: 'yellow',
  LEASE_PENDING: 'yellow',
  RUNNING: 'cyan',
  ACTIVE: 'cyan',
  DONE: 'green',
  SUCCEEDED: 'green',
  OK: 'green',
  RELEASED: 'dim',
  CANCELED: 'dim',
  WARN: 'yellow',
  FAILED: 'red',
  TIMEOUT: 'red',
  EXPIRED: 'red',
  PROBLEM: 'red',
};

/** The colour of a state of a job or a lease, or of the level of a finding. */
export const styleOf = (state: string): Style | undefined => stateStyles[state];
