import { counted } from '../explain/text.ts';
import { span } from '../time.ts';
import type { AccessFacts, KeyFacts } from './facts.ts';
import { type Finding, finding } from './finding.ts';

const dayMs = 86_400_000;
/** How long before its end a key or a certificate is warned of. */
const expiresSoonMs = 14 * dayMs;
const unusedMs = 90 * dayMs;
/** Names that a finding lists. */
const namesMax = 5;

/**
 * Findings about the server's addresses, its certificate and its keys. `keys` is null if they could not be
 * read.
 */
export function checkAccess(
  { posture, certificate, usesKeys }: AccessFacts,
  keys: readonly KeyFacts[] | null,
  nowMs: number,
): Finding[] {
  return [
    postureFinding(posture),
    ...(certificate ? [certificateFinding(certificate, nowMs)] : []),
    ...(usesKeys ? keyFindings(keys, nowMs) : []),
  ];
}

function postureFinding({ isReachable, auth, hasTls }: AccessFacts['posture']): Finding {
  const isOpen = isReachable && auth.length === 0;
  const isPlain = isReachable && !hasTls;
  const problems = [
    ...(isOpen ? ['every caller may do everything'] : []),
    ...(isPlain ? ['credentials and payloads are sent in clear text, unless a proxy ends TLS'] : []),
  ];
  const place = isReachable
    ? 'other machines can reach this server'
    : 'only this machine reaches this server';
  const who = auth.length === 0 ? 'no authentication' : `authentication by ${auth.join(', ')}`;
  const means = `${who}, ${hasTls ? 'TLS' : 'no TLS'}`;
  return finding(
    'access',
    'posture',
    problems.length === 0 ? 'OK' : 'WARN',
    problems.length === 0 ? `${place}; ${means}` : `${place}, and ${problems.join('; ')}`,
    'set LEASEHOLD_AUTH and the files of TLS, or listen on loopback behind a proxy',
    { reachable: isReachable, authentication: [...auth], tls: hasTls },
  );
}

function certificateFinding(
  { expiresAtMs, isFailing }: NonNullable<AccessFacts['certificate']>,
  nowMs: number,
): Finding {
  const leftMs = expiresAtMs - nowMs;
  const end = leftMs <= 0 ? `ended ${span(-leftMs)} ago` : `ends in ${span(leftMs)}`;
  const facts = { expires_at: new Date(expiresAtMs).toISOString(), reload_failing: isFailing };
  if (isFailing)
    return finding(
      'access',
      'certificate',
      'PROBLEM',
      `the files of TLS have changed and cannot be used; the certificate in use ${end}`,
      'see the log for the reason, and write a certificate and a key that belong together',
      facts,
    );
  const level = leftMs <= 0 ? 'PROBLEM' : leftMs <= expiresSoonMs ? 'WARN' : 'OK';
  return finding(
    'access',
    'certificate',
    level,
    `the certificate ${end}`,
    'renew it; the server reads the new files by itself',
    facts,
  );
}

function keyFindings(keys: readonly KeyFacts[] | null, nowMs: number): Finding[] {
  if (keys === null)
    return [
      finding(
        'access',
        'keys',
        'WARN',
        'the keys could not be read in time',
        'ask again; if it stays so, see what holds the tables locked',
      ),
    ];
  const expiring = keys.filter(
    ({ expiresAtMs }) => expiresAtMs !== null && expiresAtMs - nowMs <= expiresSoonMs,
  );
  const unused = keys.filter(
    ({ lastUsedAtMs, createdAtMs }) => nowMs - (lastUsedAtMs ?? createdAtMs) > unusedMs,
  );
  const admins = keys.filter(({ roles }) => roles.includes('admin'));
  return [
    finding(
      'access',
      'keys_expiring',
      expiring.length === 0 ? 'OK' : 'WARN',
      expiring.length === 0
        ? 'no key expires within 14 days'
        : `${counted(expiring.length, 'key')} will expire within 14 days: ${namesOf(expiring)}`,
      'create keys with new names and give them to the callers, then revoke the old ones',
      { keys: expiring.length },
    ),
    finding(
      'access',
      'keys_unused',
      unused.length === 0 ? 'OK' : 'WARN',
      unused.length === 0
        ? 'every key was used within 90 days'
        : `${counted(unused.length, 'key')} had no use for 90 days: ${namesOf(unused)}`,
      'revoke keys that are not needed: leasehold keys revoke <key-id>',
      { keys: unused.length },
    ),
    finding(
      'access',
      'admin_keys',
      admins.length === 0 ? 'WARN' : 'OK',
      admins.length === 0
        ? 'no key in force is for administrators'
        : `${counted(admins.length, 'key')} for administrators: ${namesOf(admins)}`,
      'create one on the database itself: leasehold keys create --name ops --role admin --local',
      { keys: admins.length },
    ),
  ];
}

/** The names, those that expire first at the beginning. */
const namesOf = (keys: readonly KeyFacts[]): string => {
  const end = ({ expiresAtMs }: KeyFacts) => expiresAtMs ?? Number.POSITIVE_INFINITY;
  const names = keys.toSorted((a, b) => (end(a) < end(b) ? -1 : 1)).map(({ name }) => name);
  const more = names.length - namesMax;
  return `${names.slice(0, namesMax).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
};

/** The first versions of Node with all fixes of its HTTP/2 and TLS that this server relies on. */
const nodeFloors: Readonly<Record<number, number>> = { 22: 23, 24: 17 };

export function nodeFinding(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const floor = nodeFloors[major];
  // Odd versions end after half a year.
  const isOld = floor === undefined ? major < 26 || major % 2 === 1 : minor < floor;
  return finding(
    'server',
    'node_version',
    isOld ? 'WARN' : 'OK',
    isOld ? `Node ${version} lacks fixes of its HTTP/2 and TLS` : `Node ${version}`,
    'use Node 22.23 or 24.17, or a later version of these or of a later even line',
    { node: version },
  );
}
