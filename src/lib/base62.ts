const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** A number in base 62 with a fixed length. */
export function base62(value: bigint, length: number): string {
  let rest = value;
  let text = '';
  for (let i = 0; i < length; i++) {
    text = digits.charAt(Number(rest % 62n)) + text;
    rest /= 62n;
  }
  if (rest > 0n) throw new Error(`the value needs more than ${length} digits`);
  return text;
}
