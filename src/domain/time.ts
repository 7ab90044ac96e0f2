/** A time as the contracts write it: ISO 8601 in UTC. */
export function iso(ms: number): string;
export function iso(ms: number | null): string | null;
export function iso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

/** A time span for people: `250 ms`, `4.5 s`, `45 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`. */
export function span(ms: number): string {
  const whole = Math.max(0, Math.round(ms));
  if (whole < 1_000) return `${whole} ms`;
  if (whole < 9_950) return `${Math.round(whole / 100) / 10} s`;
  const seconds = Math.round(whole / 1_000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return inTwo(seconds, 60, 'min', 's');
  const minutes = Math.round(seconds / 60);
  if (minutes < 1_440) return inTwo(minutes, 60, 'h', 'min');
  return inTwo(Math.round(minutes / 60), 24, 'd', 'h');
}

/** A number of small units in large units and the rest, which is left out where it is zero. */
function inTwo(count: number, size: number, large: string, small: string): string {
  const rest = count % size;
  const whole = `${Math.floor(count / size)} ${large}`;
  return rest === 0 ? whole : `${whole} ${rest} ${small}`;
}
