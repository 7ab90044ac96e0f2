/** Metrics of keys and certificates. They need no statement: the server has both in memory. */
import type { Key } from '../../domain/access/key.ts';
import type { TlsFiles } from '../../lib/net/tls-files.ts';
import type { Registry } from '../registry.ts';

/** Keys with a series of their own. */
const keysMax = 100;

interface AccessGauges {
  /** All keys; undefined where no keys are used. */
  keys: () => readonly Key[] | undefined;
  tls: TlsFiles | undefined;
  nowMs?: () => number;
}

export function declareAccess(registry: Registry, { keys, tls, nowMs = Date.now }: AccessGauges): void {
  registry.gauge(
    'leasehold_key_expires_seconds',
    'Seconds until a key expires, by its name, of the 100 keys in force that expire next.',
    () => {
      const now = nowMs();
      return (keys() ?? [])
        .flatMap(({ name, expiresAtMs, revokedAtMs }) =>
          expiresAtMs === null || expiresAtMs <= now || revokedAtMs !== null
            ? []
            : { labels: { key: name }, value: (expiresAtMs - now) / 1000 },
        )
        .sort((a, b) => a.value - b.value)
        .slice(0, keysMax);
    },
    'key',
  );
  registry.gauge(
    'leasehold_tls_certificate_expires_seconds',
    'Seconds until the certificate in use expires; nothing without TLS.',
    () => tls && (tls.expiresAtMs - nowMs()) / 1000,
  );
  registry.counting(
    'leasehold_tls_reload_failures_total',
    'Looks at the files of TLS that failed; the old certificate stays in use.',
    () => tls?.failures ?? 0,
  );
}
