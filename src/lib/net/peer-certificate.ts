/**
 * The verified certificate of a client, read once for each connection.
 *
 * Guarantees: a certificate counts only if the handshake has verified it. A socket that was only asked for a
 * certificate, or that has none, has none here. The names come from a parser of Node's own notation, in which
 * a value with special characters is JSON; a text that does not follow it leaves no name at all.
 */
import type { X509Certificate } from 'node:crypto';

export interface PeerCertificate {
  kind: 'cert';
  /** The alternative names of the type URI and of the type DNS; no other names are identities. */
  uris: readonly string[];
  dnsNames: readonly string[];
  expiresAtMs: number;
}

/** The parts of a TLS socket that are used. HTTP/2 shows its socket through a proxy, which has them too. */
interface VerifiedSocket {
  authorized?: unknown;
  getPeerX509Certificate?: () => X509Certificate | undefined;
}

const known = new WeakMap<object, PeerCertificate | null>();

/** `connection` identifies the connection: a socket, or the HTTP/2 session on it. */
export function peerCertificateOf(
  connection: object,
  socketOf: () => object | undefined,
): PeerCertificate | undefined {
  const remembered = known.get(connection);
  if (remembered !== undefined) return remembered ?? undefined;
  const found = read(socketOf());
  known.set(connection, found ?? null);
  return found;
}

function read(socket: VerifiedSocket | undefined): PeerCertificate | undefined {
  // A resumed session without a certificate counts as authorized, too.
  if (socket?.authorized !== true) return undefined;
  const certificate = socket.getPeerX509Certificate?.();
  if (!certificate) return undefined;
  const names = alternativeNames(certificate.subjectAltName ?? '');
  const valuesOf = (type: string): string[] =>
    (names ?? []).filter((name) => name.type === type).map(({ value }) => value);
  return {
    kind: 'cert',
    uris: valuesOf('URI'),
    dnsNames: valuesOf('DNS').map((name) => name.toLowerCase()),
    expiresAtMs: Date.parse(certificate.validTo),
  };
}

export interface AlternativeName {
  type: string;
  value: string;
}

/** `DNS:a.example, URI:"spiffe://t/a, URI:spiffe://t/b"` has two names. */
const nameForm = /([A-Za-z][A-Za-z ]*):(?:"((?:[^"\\]|\\.)*)"|([^",\\]*))(?:, |$)/y;

/** The names in Node's notation, or undefined if the text does not follow it. */
export function alternativeNames(text: string): AlternativeName[] | undefined {
  const names: AlternativeName[] = [];
  nameForm.lastIndex = 0;
  while (nameForm.lastIndex < text.length) {
    const [, type = '', quoted, plain = ''] = nameForm.exec(text) ?? [];
    if (type === '') return undefined;
    const value = quoted === undefined ? plain : unquoted(quoted);
    if (value === undefined) return undefined;
    names.push({ type, value });
  }
  return names;
}

function unquoted(text: string): string | undefined {
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    return undefined;
  }
}
