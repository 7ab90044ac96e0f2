/**
 * The fields that the frames of all bidirectional streams share: lease ids as the worker sent them, names and
 * tokens, and the weight of an item in a stream's memory until it is answered.
 */
import { invalid } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { checkText } from '../../domain/requests/json-check.ts';
import type { WireReader } from './reader.ts';

/** A heartbeat of usual length, in bytes. */
const usualBytes = 200;

/** The weight of an item: its size in heartbeats of usual length. */
export const weightOf = (bytes: number): number => 1 + Math.floor(bytes / usualBytes);

const uuidChars = 36;

/** The kinds of characters in a UUID. */
const lowerHex = 1;
const upperHex = 2;
const dash = 3;
const charKinds = new Uint8Array(256);
for (const char of '0123456789abcdef') charKinds[char.charCodeAt(0)] = lowerHex;
for (const char of 'ABCDEF') charKinds[char.charCodeAt(0)] = upperHex;
charKinds['-'.charCodeAt(0)] = dash;

/** 0 if the text is no UUID, `upperHex` if it has capital letters, or else `lowerHex`. */
export function uuidKind(bytes: Uint8Array, start: number, end: number): number {
  if (end - start !== uuidChars) return 0;
  let kinds = 0;
  for (let i = 0; i < uuidChars; i++) {
    const kind = charKinds[bytes[start + i] as number] as number;
    const isDash = i === 8 || i === 13 || i === 18 || i === 23;
    if (kind === 0 || (kind === dash) !== isDash) return 0;
    if (kind === upperHex) kinds = upperHex;
  }
  return kinds === 0 ? lowerHex : upperHex;
}

/** The lease id as the worker sent it. If it cannot be a lease id, only its beginning. */
export const nameOf = (kind: number, reader: WireReader, start: number, end: number): string =>
  kind === 0 ? cut(reader.text(start, end)) : reader.bytes.toString('latin1', start, end);

export const leaseIdOf = (kind: number, named: string): string =>
  kind === upperHex ? named.toLowerCase() : named;

/** Shortens a text that is no id before the server repeats it, without splitting a surrogate pair. */
export const cut = (text: string): string =>
  text.length > limits.nameChars ? text.slice(0, limits.nameChars).toWellFormed() : text;

export function checkName(name: string, field: string): void {
  if (!/\S/.test(name)) throw invalid(field, 'must not be blank');
  if (name.length > limits.nameChars)
    throw invalid(field, `must not be longer than ${limits.nameChars} characters`);
  checkText(name, field);
}

export function checkToken(token: string): void {
  if (token.length > limits.nameChars)
    throw invalid('lease_token', `must not be longer than ${limits.nameChars} characters`);
  checkText(token, 'lease_token');
}
