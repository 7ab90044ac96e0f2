/** The public keys of an issuer of tokens, from the text of a JSON Web Key Set. */
import { createLocalJWKSet, type JSONWebKeySet, type LocalJWKSet } from 'jose';

/** Types of public keys. A set may have others, such as keys for encryption, which are not used. */
const publicTypes = ['RSA', 'EC', 'OKP'];

/** Throws unless the set has a public key that can verify signatures. */
export function parseKeySet(text: string): LocalJWKSet {
  let set: JSONWebKeySet;
  try {
    set = JSON.parse(text) as JSONWebKeySet;
  } catch (cause) {
    throw new Error(`the key set is not JSON: ${(cause as Error).message}`, { cause });
  }
  const find = createLocalJWKSet(set);
  if (!set.keys.some(({ kty, use }) => publicTypes.includes(kty ?? '') && (use ?? 'sig') === 'sig'))
    throw new Error('the key set has no key that verifies signatures');
  return find;
}
