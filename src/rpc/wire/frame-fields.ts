/**
 * What the frames of all streams in both directions have in common: leases as their workers name them, names and tokens, and
 * what something takes of a stream's memory until it is answered.
 */
import { invalid } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { checkText } from '../../domain/requests/json-check.ts';
import type { WireReader } from './reader.ts';

/** A heartbeat of usual length, in bytes. */
const usualBytes = 200;

/** So many bytes weigh as much as so many heartbeats of usual length. */
export const weightOf = (bytes: number): number => 1 + Math.floor(bytes / usualBytes);

const uuidChars = 36;

/** What may stand at a place of a UUID. */
const lowerHex = 1;
const upperHex = 2;
const dash = 3;
const charKinds = new Uint8Array(256);
for (const char of '0123456789abcdef') charKinds[char.charCodeAt(0)] = lowerHex;
for (const char of 'ABCDEF') charKinds[char.charCodeAt(0)] = upperHex;
charKinds['-'.charCodeAt(0)] = dash;

/** 0 where it is no UUID, `upperHex` where it has capital letters, or else `lowerHex`. */
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

/** A lease as it was named; of what cannot be a lease's id, the beginning. */
export const nameOf = (kind: number, reader: WireReader, start: number, end: number): string =>
  kind === 0 ? cut(reader.text(start, end)) : reader.bytes.toString('latin1', start, end);

export const leaseIdOf = (kind: number, named: string): string =>
  kind === upperHex ? named.toLowerCase() : named;

/** What is not an id is not repeated at any length; half a character could not be. */
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
