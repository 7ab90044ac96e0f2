/**
 * The credential that clients send, and the certificates that they use. They come from files or variables and
 * never from a flag, which other users of the machine could see.
 */
import { readFileSync } from 'node:fs';
import { BlockList, isIP } from 'node:net';

/** A file is read again after this time, because tokens in files are rotated. */
const rereadMs = 60_000;

export class CredentialError extends Error {
  override readonly name = 'CredentialError';
}

interface Remembered {
  text: string;
  atMs: number;
}

const remembered = new Map<string, Remembered>();

/** The key or token of the environment, or undefined if there is none. */
export function credentialOf(
  env: NodeJS.ProcessEnv = process.env,
  nowMs: () => number = () => performance.now(),
): string | undefined {
  if (env.LEASEHOLD_API_KEY) return env.LEASEHOLD_API_KEY.trim();
  for (const variable of ['LEASEHOLD_API_KEY_FILE', 'LEASEHOLD_TOKEN_FILE']) {
    const file = env[variable];
    if (file) return readRemembered(variable, file, nowMs());
  }
  return undefined;
}

/** The last text stays in use where the file is missing for a moment, as during a rotation. */
function readRemembered(variable: string, file: string, now: number): string {
  const known = remembered.get(file);
  if (known && now - known.atMs < rereadMs) return known.text;
  try {
    const text = readFileSync(file, 'utf8').trim();
    // A file that is being written again is empty for a moment.
    if (text === '') throw new Error('it is empty');
    remembered.set(file, { text, atMs: now });
    return text;
  } catch (cause) {
    if (known) return known.text;
    throw new CredentialError(`${variable}: the file cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** The headers of a request. Throws where the credential would cross a network in clear text. */
export function credentialHeaders(
  url: URL,
  credential: string | undefined,
  env: NodeJS.ProcessEnv = process.env,
): Record<string, string> {
  if (credential === undefined) return {};
  const isPlain = url.protocol !== 'https:';
  if (isPlain && !isLoopback(url.hostname) && !(env.LEASEHOLD_INSECURE ?? '').split(',').includes('no-tls'))
    throw new CredentialError(
      `the credential would go to ${url.host} in clear text: use https, or set LEASEHOLD_INSECURE=no-tls`,
    );
  return { authorization: `Bearer ${credential}` };
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

function isLoopback(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, '').toLowerCase();
  if (name === 'localhost' || name.endsWith('.localhost')) return true;
  const version = isIP(name);
  return version !== 0 && loopback.check(name, version === 6 ? 'ipv6' : 'ipv4');
}

/**
 * Certificates for `node:tls`, from the files that the environment names. They are read for each connection,
 * because certificates of services last for an hour or a day.
 */
export function certificatesOf(env: NodeJS.ProcessEnv = process.env): {
  ca?: Buffer;
  cert?: Buffer;
  key?: Buffer;
} {
  const { LEASEHOLD_CA_FILE: ca, LEASEHOLD_CLIENT_CERT_FILE: cert, LEASEHOLD_CLIENT_KEY_FILE: key } = env;
  if (!cert !== !key)
    throw new CredentialError('LEASEHOLD_CLIENT_CERT_FILE and LEASEHOLD_CLIENT_KEY_FILE need each other');
  return {
    ...(ca ? { ca: readCertificate('LEASEHOLD_CA_FILE', ca) } : {}),
    ...(cert ? { cert: readCertificate('LEASEHOLD_CLIENT_CERT_FILE', cert) } : {}),
    ...(key ? { key: readCertificate('LEASEHOLD_CLIENT_KEY_FILE', key) } : {}),
  };
}

function readCertificate(variable: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new CredentialError(`${variable}: the file cannot be read: ${(cause as Error).message}`, { cause });
  }
}
