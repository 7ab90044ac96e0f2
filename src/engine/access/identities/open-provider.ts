/** Builds what logs users of the identity provider in, as configured. Its library is loaded only then. */
import { readFile } from 'node:fs/promises';
import type { ProvidedIdentity } from '../../../domain/access/session.ts';

export interface ProviderSettings {
  jwtIssuer: string | undefined;
  jwtCaFile: string | undefined;
  oidcClientId: string | undefined;
  oidcClientSecretFile: string | undefined;
  publicUrl: string | undefined;
}

/** Logs users of an identity provider in. */
export interface ProviderLogin {
  /** Where the browser goes, and what it keeps meanwhile. */
  begin(): Promise<{ url: string; pending: string }>;
  /** The user whom the provider has verified. Throws `LoginRefusedError`. */
  finish(query: string, pending: string | undefined): Promise<ProvidedIdentity>;
}

/** Where the provider sends the browser back to. */
const callbackPath = '/api/access/callback';

export async function openProvider(settings: ProviderSettings): Promise<ProviderLogin | undefined> {
  const { jwtIssuer: issuer, oidcClientId: clientId, publicUrl } = settings;
  if (clientId === undefined || issuer === undefined || publicUrl === undefined) return undefined;
  const { OidcLogin } = await import('./oidc-login.ts');
  const secret = await contentOf('LEASEHOLD_OIDC_CLIENT_SECRET_FILE', settings.oidcClientSecretFile);
  const clientSecret = secret?.toString('utf8').trim();
  if (clientSecret === '') throw new Error('LEASEHOLD_OIDC_CLIENT_SECRET_FILE: the file is empty');
  const ca = await contentOf('LEASEHOLD_JWT_CA_FILE', settings.jwtCaFile);
  return new OidcLogin({ issuer, clientId, clientSecret, publicUrl, ca }, callbackPath);
}

const contentOf = async (variable: string, path: string | undefined): Promise<Buffer | undefined> =>
  path === undefined
    ? undefined
    : readFile(path).catch((cause: unknown) => {
        throw new Error(`${variable}: the file cannot be read: ${(cause as Error).message}`, { cause });
      });
