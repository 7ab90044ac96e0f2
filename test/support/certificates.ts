/** Certificates for tests of TLS: authorities of their own, servers, clients, and lists of revoked ones. */
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { temporaryFolder } from './cleanup.ts';
import { programPath } from './programs.ts';

const run = promisify(execFile);

export interface Certificate {
  cert: string;
  key: string;
  serial: string;
}

export interface IssueOptions {
  /** The alternative names, as in a file of openssl: `URI.1 = spiffe://test/a`. */
  names?: readonly string[];
  /** Arguments such as `-startdate` and `-enddate`. */
  dates?: readonly string[];
}

const settings = `[ca]
default_ca = test
[test]
database = index.txt
new_certs_dir = .
serial = serial
crlnumber = crlnumber
certificate = ca.crt
private_key = ca.key
default_md = sha256
default_days = 2
default_crl_days = 2
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
`;

/** An authority in a folder of its own, made with openssl. */
export class Authority {
  readonly #folder: string;
  readonly cert: string;
  #count = 0;

  private constructor(folder: string, cert: string) {
    this.#folder = folder;
    this.cert = cert;
  }

  static async create(name = 'Test authority'): Promise<Authority> {
    const folder = await temporaryFolder('authority');
    await writeFile(join(folder, 'ca.cnf'), settings);
    await writeFile(join(folder, 'index.txt'), '');
    await writeFile(join(folder, 'serial'), '1000\n');
    await writeFile(join(folder, 'crlnumber'), '1000\n');
    const request = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
    const files = ['-keyout', 'ca.key', '-out', 'ca.crt', '-days', '2', '-subj', `/CN=${name}`];
    await openssl(folder, [...request, ...files]);
    return new Authority(folder, await readFile(join(folder, 'ca.crt'), 'utf8'));
  }

  /** By default the certificate has the name and the address of loopback, and counts for two days. */
  async issue(name: string, { names, dates = [] }: IssueOptions = {}): Promise<Certificate> {
    const file = `issued-${++this.#count}`;
    const request = ['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
    const all = names ?? [`DNS.1 = ${name}`, 'IP.1 = 127.0.0.1'];
    const lines = ['[req]', 'distinguished_name = none', 'req_extensions = more', '[none]', '[more]'];
    const config = [...lines, 'subjectAltName = @names', '[names]', ...all, ''];
    await writeFile(join(this.#folder, `${file}.cnf`), config.join('\n'));
    const files = ['-keyout', `${file}.key`, '-out', `${file}.csr`, '-config', `${file}.cnf`];
    await openssl(this.#folder, [...request, ...files, '-subj', `/CN=${name}`]);
    const sign = [
      'ca',
      '-config',
      'ca.cnf',
      '-batch',
      '-notext',
      '-in',
      `${file}.csr`,
      '-out',
      `${file}.crt`,
      ...dates,
    ];
    await openssl(this.#folder, sign);
    const { stdout } = await openssl(this.#folder, ['x509', '-in', `${file}.crt`, '-noout', '-serial']);
    return {
      cert: await readFile(join(this.#folder, `${file}.crt`), 'utf8'),
      key: await readFile(join(this.#folder, `${file}.key`), 'utf8'),
      serial: stdout.trim().replace('serial=', ''),
    };
  }

  /** The list of revoked certificates, with these among them. */
  async revoke(...certificates: readonly Certificate[]): Promise<string> {
    for (const { serial } of certificates)
      await openssl(this.#folder, ['ca', '-config', 'ca.cnf', '-revoke', `${serial}.pem`]);
    await openssl(this.#folder, ['ca', '-config', 'ca.cnf', '-gencrl', '-out', 'crl.pem']);
    return readFile(join(this.#folder, 'crl.pem'), 'utf8');
  }
}

const openssl = (cwd: string, args: readonly string[]) => run(programPath('openssl'), args, { cwd });

/** A folder with the files of a server, which tests replace as a rotation does. */
export class CertificateFiles {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async create(certificate: Certificate): Promise<CertificateFiles> {
    const files = new CertificateFiles(await temporaryFolder('certificates'));
    await files.replace(certificate);
    return files;
  }

  get certFile(): string {
    return join(this.#folder, 'tls.crt');
  }

  get keyFile(): string {
    return join(this.#folder, 'tls.key');
  }

  async replace({ cert, key }: Certificate): Promise<void> {
    await writeFile(this.certFile, cert);
    await writeFile(this.keyFile, key);
  }

  async write(name: string, text: string): Promise<string> {
    const path = join(this.#folder, name);
    await writeFile(path, text);
    return path;
  }
}
