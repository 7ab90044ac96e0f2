/**
 * The text of a key: `lhk_`, 12 digits that identify it, `_`, 43 digits of the secret, and 6 digits of a
 * checksum, all in base 62. Secret scanners find the prefix. The checksum rejects typing errors before
 * anything is looked up. Only a hash of the secret is stored: 256 random bits need no slow hash.
 */
import { createHash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { base62 } from '../../lib/base62.ts';

export const keyPrefix = 'lhk_';

const idLength = 12;
const secretLength = 43;
const checksumLength = 6;

const form = new RegExp(
  `^(${keyPrefix}([0-9A-Za-z]{${idLength}})_([0-9A-Za-z]{${secretLength}}))([0-9A-Za-z]{${checksumLength}})$`,
);

export interface KeyText {
  keyId: string;
  secret: string;
}

const randomDigits = (length: number): string => {
  const bytes = Math.ceil((length * Math.log2(62)) / 8) + 8;
  return base62(BigInt(`0x${randomBytes(bytes).toString('hex')}`) % 62n ** BigInt(length), length);
};

const checksum = (text: string): string => base62(BigInt(crc32(text)), checksumLength);

export const newKeyId = (): string => randomDigits(idLength);

/** A new secret for a key. Its text is shown once, and never stored. */
export function newKeyText(keyId: string): { text: string; hash: string } {
  const secret = randomDigits(secretLength);
  const body = `${keyPrefix}${keyId}_${secret}`;
  return { text: body + checksum(body), hash: hashOf(secret) };
}

/** The parts of a key, or undefined if the text cannot be a key. */
export function parseKey(text: string): KeyText | undefined {
  const [, body, keyId, secret, sum] = form.exec(text) ?? [];
  if (body === undefined || keyId === undefined || secret === undefined) return undefined;
  return checksum(body) === sum ? { keyId, secret } : undefined;
}

/** SHA-256, in hexadecimal digits. */
export const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('hex');
