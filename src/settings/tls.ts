/** Settings of TLS, which hold for both ports. */
import { path, setting, whole } from '../lib/setting-values.ts';

export const tlsSettings = {
  tlsCertFile: setting<string | undefined>({
    variable: 'LEASEHOLD_TLS_CERT_FILE',
    default: undefined,
    defaultText: 'no TLS',
    about: 'The certificate chain of both ports, in PEM. It is read again when it changes.',
    ...path,
  }),
  tlsKeyFile: setting<string | undefined>({
    variable: 'LEASEHOLD_TLS_KEY_FILE',
    default: undefined,
    defaultText: 'no TLS',
    about: 'The private key of that certificate, in PEM.',
    ...path,
  }),
  tlsClientCaFile: setting<string | undefined>({
    variable: 'LEASEHOLD_TLS_CLIENT_CA_FILE',
    default: undefined,
    defaultText: 'no client certificates',
    about: 'The authorities whose client certificates count, in PEM.',
    ...path,
  }),
  tlsClientAuth: setting<'none' | 'request' | 'require'>({
    variable: 'LEASEHOLD_TLS_CLIENT_AUTH',
    default: 'none',
    about: 'Whether clients are asked for a certificate, and refused without one.',
    allowed: 'none, request or require',
    parse: (text) => (['none', 'request', 'require'] as const).find((one) => one === text),
  }),
  tlsCrlFile: setting<string | undefined>({
    variable: 'LEASEHOLD_TLS_CRL_FILE',
    default: undefined,
    defaultText: 'no list',
    about: 'The list of revoked client certificates, in PEM.',
    ...path,
  }),
  tlsMinVersion: setting<'TLSv1.2' | 'TLSv1.3'>({
    variable: 'LEASEHOLD_TLS_MIN_VERSION',
    default: 'TLSv1.2',
    about: 'The oldest version of TLS that is accepted.',
    allowed: 'TLSv1.2 or TLSv1.3',
    parse: (text) => (['TLSv1.2', 'TLSv1.3'] as const).find((one) => one === text),
  }),
  tlsReloadS: setting({
    variable: 'LEASEHOLD_TLS_RELOAD_S',
    default: 10,
    about: 'How often the files of TLS and of access are looked at for changes, in seconds.',
    ...whole(1, 3_600),
  }),
};
