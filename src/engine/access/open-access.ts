/** Builds what the server needs to know its callers, as configured. */

import { open, rm } from 'node:fs/promises';
import { serverLimits } from '../../domain/access/key-limits.ts';
import { localPrincipal, type Principal } from '../../domain/access/principal.ts';
import { everything } from '../../domain/access/scopes.ts';
import type { ProvidedIdentity } from '../../domain/access/session.ts';
import { DomainError } from '../../domain/errors.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { AuditQueue } from './audit/audit-queue.ts';
import { Authenticator } from './authenticator.ts';
import type { IdentityMapper } from './identities/identity-mapper.ts';
import { type IdentitySettings, openIdentities } from './identities/open-identities.ts';
import { openProvider, type ProviderLogin, type ProviderSettings } from './identities/open-provider.ts';
import { dayMs, expiresInDaysDefault } from './key-requests.ts';
import { KeyRing } from './key-ring.ts';
import { KeyService } from './key-service.ts';
import { FailedAttempts } from './limits/failed-attempts.ts';
import { StreamCounts } from './limits/stream-counts.ts';
import { Sessions } from './sessions.ts';

export interface AccessSettings extends IdentitySettings, ProviderSettings {
  authRefreshS: number;
  sessionTtlS: number;
  adminKeyFile: string | undefined;
  rateAnonymous: number;
  rateBurstS: number;
  maxStreamsPerKey: number;
}

export interface AccessParts {
  authenticator: Authenticator;
  keyRing: KeyRing | undefined;
  audit: AuditQueue;
  /** The sessions of browsers; undefined without authentication. */
  sessions: Sessions | undefined;
  /** Logins at an identity provider, if one is configured. */
  provider: ProviderLogin | undefined;
  start(): void;
  stop(): Promise<void>;
}

export async function openAccess(
  settings: AccessSettings,
  database: Database,
  log: Log,
): Promise<AccessParts> {
  const { auth } = settings;
  const audit = new AuditQueue({ database, log });
  const identities = await openIdentities(settings, log);
  const keyRing = auth.includes('keys')
    ? await openKeyRing(settings, { hasOtherWays: identities !== undefined, audit, database, log })
    : undefined;
  const isOn = auth.length > 0;
  const sessions = isOn ? openSessions(settings, keyRing, identities?.mapper, database, log) : undefined;
  const authenticator = new Authenticator({
    keys: keyRing,
    tokens: identities?.tokens,
    sessions,
    identities: identities?.mapper,
    takesCertificates: identities?.takesCertificates ?? false,
    failedAttempts: isOn ? new FailedAttempts(settings.rateAnonymous, settings.rateBurstS) : undefined,
    streamCounts: isOn ? new StreamCounts(settings.maxStreamsPerKey) : undefined,
    refusals: audit,
    log,
  });
  const services = [
    authenticator,
    ...(keyRing ? [keyRing] : []),
    ...(sessions ? [sessions] : []),
    ...(identities?.services ?? []),
  ];
  return {
    authenticator,
    keyRing,
    audit,
    sessions,
    provider: await openProvider(settings),
    start: () => {
      for (const service of services) service.start();
      if (isOn) audit.start();
    },
    stop: async () => {
      await Promise.all(services.map((service) => service.stop()));
      // The other services may have something to record until they have stopped.
      if (isOn) await audit.stop();
    },
  };
}

function openSessions(
  { authRefreshS, sessionTtlS }: AccessSettings,
  keys: KeyRing | undefined,
  mapper: IdentityMapper | undefined,
  database: Database,
  log: Log,
): Sessions {
  const [ttlMs, refreshMs] = [sessionTtlS * 1_000, authRefreshS * 1_000];
  const principalOf = mapper && providedTo(mapper);
  return new Sessions({ database, keys, ...(principalOf ? { principalOf } : {}), ttlMs, refreshMs, log });
}

/** The rights of a user by the access rules. */
const providedTo =
  (mapper: IdentityMapper) =>
  (identity: ProvidedIdentity, expiresAtMs: number): Principal | undefined => {
    try {
      return mapper.principalOf({ kind: 'jwt', ...identity, expiresAtMs });
    } catch (error) {
      if (error instanceof DomainError && error.code === 'permission_denied') return undefined;
      throw error;
    }
  };

interface KeyRingParts {
  /** The server takes other credentials, too; without a key nothing could call it otherwise. */
  hasOtherWays: boolean;
  audit: AuditQueue;
  database: Database;
  log: Log;
}

async function openKeyRing(
  { authRefreshS, adminKeyFile }: AccessSettings,
  { hasOtherWays, audit, database, log }: KeyRingParts,
): Promise<KeyRing> {
  const keyRing = new KeyRing({
    database,
    refreshMs: authRefreshS * 1_000,
    log,
    onNewAddress: (principal, address) => audit.noteAddress(principal, address),
  });
  await keyRing.load();
  // Revoked and expired keys count here: a restart must not undo that all keys were revoked.
  if (keyRing.keys.length === 0 && adminKeyFile !== undefined) {
    await writeAdminKey(database, adminKeyFile);
    await keyRing.load();
  }
  if (keyRing.size === 0 && !hasOtherWays)
    throw new Error(
      'LEASEHOLD_AUTH is keys, and no key is in force: ' +
        'run `leasehold keys create --local`, or set LEASEHOLD_ADMIN_KEY_FILE before the first start',
    );
  return keyRing;
}

/**
 * Writes a key for administrators to a new file that only its user can read. Of servers that start together
 * one creates the key, because names are unique. The key expires like others.
 */
async function writeAdminKey(database: Database, path: string): Promise<void> {
  const file = await open(path, 'wx', 0o600).catch((cause: unknown) => {
    throw new Error(`LEASEHOLD_ADMIN_KEY_FILE: the file cannot be created: ${(cause as Error).message}`, {
      cause,
    });
  });
  try {
    const { text } = await new KeyService(database).createFrom(
      {
        name: 'admin',
        roles: ['admin'],
        scopes: everything,
        workerIds: ['*'],
        seesPayloads: true,
        limits: serverLimits,
        note: 'written by the first server',
        expiresAtMs: Date.now() + expiresInDaysDefault * dayMs,
      },
      { peer: 'server', principal: { ...localPrincipal, kind: 'system', id: 'server', name: 'server' } },
    );
    await file.writeFile(`${text}\n`);
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}
