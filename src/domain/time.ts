/** A time as the contracts write it: ISO 8601 in UTC. */
export function iso(ms: number): string;
export function iso(ms: number | null): string | null;
export function iso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

/** A time span for people: `250 ms`, `4.5 s`, `45 s`, `12 min`, `3 h`, `4 d`. */
export function span(ms: number): string {
  const whole = Math.max(0, Math.round(ms));
  if (whole < 1_000) return `${whole} ms`;
  if (whole < 10_000) return `${Math.round(whole / 100) / 10} s`;
  const seconds = Math.round(whole / 1_000);
  if (seconds < 300) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 180) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 72 ? `${hours} h` : `${Math.round(hours / 24)} d`;
}
