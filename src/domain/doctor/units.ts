const units = ['B', 'kiB', 'MiB', 'GiB', 'TiB'] as const;

/** A size for people, with a binary unit. */
export function bytes(count: number): string {
  let size = count;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit++;
  }
  return `${size < 10 && unit > 0 ? Math.round(size * 10) / 10 : Math.round(size)} ${units[unit]}`;
}

export const whole = (count: number): string => Math.round(count).toLocaleString('en');
