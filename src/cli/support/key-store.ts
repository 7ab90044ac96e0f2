/** Keys as the commands see them: through a server, or with `--local` in the database itself. */
import type { CreateKey } from '../../domain/requests/access.ts';
import { withServer } from './operator-client.ts';

export interface ScopesBody {
  addon_ids: string[];
  streams: string[];
  job_types: string[];
  repositories: string[];
}

export interface KeyBody {
  key_id: string;
  name: string;
  roles: string[];
  scopes: ScopesBody;
  worker_ids: string[];
  sees_payloads: boolean;
  limits: Record<string, number | null>;
  note: string | null;
  created_at: string;
  created_by: string;
  expires_at: string | null;
  revoked_at: string | null;
  revoked_by: string | null;
  previous_until: string | null;
  last_used_at: string | null;
  last_used_from: string | null;
}

export interface IdentityBody {
  kind: string;
  id: string;
  name: string;
  roles: string[];
  scopes: ScopesBody;
  worker_ids: string[];
  sees_payloads: boolean;
  expires_at: string | null;
  permissions: string[];
}

export interface FreshKey {
  key: KeyBody;
  text: string;
}

export interface KeyStore {
  create(command: CreateKey): Promise<FreshKey>;
  list(): Promise<KeyBody[]>;
  get(keyId: string): Promise<KeyBody>;
  rotate(keyId: string, command: { overlap_s?: number }): Promise<FreshKey>;
  revoke(keyId: string): Promise<KeyBody>;
  whoAmI(): Promise<IdentityBody>;
}

interface StoreFlags {
  url?: string;
  local?: boolean;
}

/** Runs `work` with the keys of a server, or of the database. Answers the exit code. */
export function keysOf(
  { url, local }: StoreFlags,
  work: (keys: KeyStore) => Promise<number>,
): Promise<number> {
  if (local) return withDatabase(work);
  return withServer(url, (server) =>
    work({
      create: (command) => server.post('/api/access/keys', command),
      list: async () => (await server.get<{ keys: KeyBody[] }>('/api/access/keys')).keys,
      get: async (keyId) => (await server.get<{ key: KeyBody }>(pathOf(keyId))).key,
      rotate: (keyId, command) => server.post(`${pathOf(keyId)}/rotate`, command),
      revoke: async (keyId) => (await server.post<{ key: KeyBody }>(`${pathOf(keyId)}/revoke`, {})).key,
      whoAmI: () => server.get('/api/access/whoami'),
    }),
  );
}

const pathOf = (keyId: string): string => `/api/access/keys/${encodeURIComponent(keyId)}`;

/** Who has the database may create any key: this is how the first one comes to be. */
async function withDatabase(work: (keys: KeyStore) => Promise<number>): Promise<number> {
  const { localKeys } = await import('./local-keys.ts');
  return localKeys(work);
}
