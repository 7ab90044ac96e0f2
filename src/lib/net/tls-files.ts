/**
 * The files of TLS: certificate and key, the authorities of client certificates, and the list of revoked
 * ones.
 *
 * Guarantees: both ports use the same context. A pair is used only after a check that the key belongs to the
 * certificate. Files that do not fit together, as in the middle of a rotation, leave the old pair in use.
 *
 * Lifecycle: `open` reads the files and throws if they cannot be used. `start` looks at them for changes;
 * `stop` ends that.
 */
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext, type SecureVersion } from 'node:tls';
import { PeriodicTask } from '../async/periodic-task.ts';
import type { Log } from '../log.ts';

export interface TlsPaths {
  certFile: string;
  keyFile: string;
  clientCaFile: string | undefined;
  crlFile: string | undefined;
  clientAuth: 'none' | 'request' | 'require';
  minVersion: SecureVersion;
}

/** What both servers are configured with. */
export interface TlsMaterial {
  cert: Buffer;
  key: Buffer;
  ca: Buffer | undefined;
  crl: Buffer | undefined;
  minVersion: SecureVersion;
  requestCert: boolean;
  rejectUnauthorized: boolean;
}

export class TlsFiles {
  readonly #paths: TlsPaths;
  readonly #log: Log;
  readonly #rounds: PeriodicTask;
  readonly #listeners: ((material: TlsMaterial) => void)[] = [];
  #material: TlsMaterial;
  #digest: string;
  #isFailing = false;
  #failures = 0;

  private constructor(paths: TlsPaths, material: TlsMaterial, reloadMs: number, log: Log) {
    this.#paths = paths;
    this.#material = material;
    this.#digest = digestOf(material);
    this.#log = log;
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return reloadMs;
      },
      onFailed: (error) => {
        if (!this.#isFailing)
          log.error('the files of TLS have changed and cannot be used; the old ones stay in use', { error });
        this.#isFailing = true;
        this.#failures++;
      },
      failedMs: reloadMs,
    });
  }

  static async open(paths: TlsPaths, reloadMs: number, log: Log): Promise<TlsFiles> {
    return new TlsFiles(paths, await readMaterial(paths), reloadMs, log);
  }

  get material(): TlsMaterial {
    return this.#material;
  }

  /** The last change of the files cannot be used. */
  get isFailing(): boolean {
    return this.#isFailing;
  }

  /** How many rounds have failed. */
  get failures(): number {
    return this.#failures;
  }

  /** When the certificate ends, by its own statement. */
  get expiresAtMs(): number {
    return Date.parse(new X509Certificate(this.#material.cert).validTo);
  }

  onChange(listener: (material: TlsMaterial) => void): void {
    this.#listeners.push(listener);
  }

  start(): void {
    this.#rounds.start();
  }

  stop(): Promise<void> {
    return this.#rounds.stop();
  }

  /** Reads the files, and uses them if they have changed. */
  async runOnce(): Promise<void> {
    const material = await readMaterial(this.#paths);
    const digest = digestOf(material);
    this.#isFailing = false;
    if (digest === this.#digest) return;
    this.#material = material;
    this.#digest = digest;
    for (const listener of this.#listeners) listener(material);
    this.#log.info('the certificate was replaced', {
      until: new Date(this.expiresAtMs).toISOString(),
    });
  }
}

async function readMaterial(paths: TlsPaths): Promise<TlsMaterial> {
  const [cert, key, ca, crl] = await Promise.all([
    read('LEASEHOLD_TLS_CERT_FILE', paths.certFile),
    read('LEASEHOLD_TLS_KEY_FILE', paths.keyFile),
    paths.clientCaFile === undefined ? undefined : read('LEASEHOLD_TLS_CLIENT_CA_FILE', paths.clientCaFile),
    paths.crlFile === undefined ? undefined : read('LEASEHOLD_TLS_CRL_FILE', paths.crlFile),
  ]);
  const material: TlsMaterial = {
    cert,
    key,
    ca,
    crl,
    minVersion: paths.minVersion,
    requestCert: paths.clientAuth !== 'none',
    rejectUnauthorized: paths.clientAuth === 'require',
  };
  if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
    throw new Error('the key of LEASEHOLD_TLS_KEY_FILE does not belong to the certificate');
  createSecureContext({ cert, key, ca, crl, minVersion: paths.minVersion });
  return material;
}

async function read(variable: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new Error(`${variable}: the file cannot be read: ${(cause as Error).message}`, { cause });
  }
}

function digestOf({ cert, key, ca, crl }: TlsMaterial): string {
  const hash = createHash('sha256');
  for (const part of [cert, key, ca, crl]) hash.update(`${part?.length ?? -1}:`).update(part ?? '');
  return hash.digest('hex');
}
