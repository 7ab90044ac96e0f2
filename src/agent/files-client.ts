import { HttpClient, type HttpClientOptions } from '../client/http-client.ts';

/** An owner's description of itself. */
export interface OwnerProfile {
  agent?: string | null;
  host?: string | null;
  pid?: number | null;
  branch?: string | null;
  /** The owner that it is a sub-agent of. */
  parent_owner_id?: string | null;
}

export interface FileLease {
  repository: string;
  path: string;
  owner_id: string;
  owner: OwnerProfile | null;
  lease_state: string;
  acquired_at: string;
  last_heartbeat_at: string;
  expires_at: string;
  fence: number;
}

export interface Blocker {
  path: string;
  owner_id: string;
  owner: OwnerProfile | null;
  acquired_at: string;
  last_heartbeat_at: string;
  age_ms: number;
}

export interface Contention {
  contention_id: string;
  owner_id: string;
  repository: string;
  paths: string[];
  denied_at: string;
  retry_at: string;
  retry_after_ms: number;
  blockers: Blocker[];
}

export interface BlockerReport {
  contention_id: string;
  owner_id: string;
  repository: string;
  paths: string[];
  denied_at: string;
  retried_at: string;
  halted_at: string;
  retry_s: number;
  blocker_changed: boolean;
  blockers: Blocker[];
  /** An instruction that the owner's next request applies. Older servers omit it. */
  kept_instruction?: {
    instruction: string;
    instructed_at: string;
    instructed_by: string;
    reason: string | null;
  } | null;
}

export interface AcquireRequest {
  owner_id: string;
  /** The caller whose contentions and halts apply, where that is not the owner. */
  caller_id?: string;
  repository: string;
  paths: string[];
  owner: OwnerProfile;
}

export type Granted = { outcome: 'granted'; leases: FileLease[] };
export type Halted = { outcome: 'halted'; blocker_report: BlockerReport };
export type Acquired = Granted | Halted | { outcome: 'contended'; contention: Contention };
export type Instructed =
  | Granted
  | Halted
  | { outcome: 'abandoned'; contention_id: string }
  | { outcome: 'kept'; contention_id: string; instruction: string };

export interface Heartbeat {
  ttl_remaining_ms: number;
  /** Files that an operator has taken from the owner. */
  lost_files: { repository: string; path: string; fence: number; lost_at: string; reason: string }[];
}

/** A waiting or halted request. */
export type Blocked = (Contention & { state: 'CONTENDED' }) | (BlockerReport & { state: 'HALTED' });

export const instructions = ['RETRY', 'ABANDON', 'FORCE_RELEASE'] as const;
export type Instruction = (typeof instructions)[number];

export type ReleaseReason = 'COMMITTED' | 'FAILED' | 'ENDED';

export interface Released {
  released: FileLease[];
  not_released: { path: string; code: string; detail: string }[];
}

export interface FileFilter {
  repository?: string | undefined;
  owner_id?: string | undefined;
}

/** The most files of one request, and the most rows of one page. */
const filesMax = 10_000;
const pageMax = 1_000;

/** Client of the server's `/api/files`: one method per route, without any policy. */
export class FilesClient {
  readonly #server: HttpClient;

  constructor(url: string | undefined, options: HttpClientOptions = {}) {
    this.#server = new HttpClient(url, options);
  }

  get url(): string {
    return this.#server.url;
  }

  acquire(request: AcquireRequest): Promise<Acquired> {
    return this.#server.post('/api/files/acquire', request);
  }

  heartbeat(ownerId: string): Promise<Heartbeat> {
    return this.#server.post('/api/files/heartbeat', { owner_id: ownerId });
  }

  async activity(ownerId: string): Promise<void> {
    await this.#server.post(`${ownerPath(ownerId)}/activity`, {});
  }

  async stop(ownerId: string): Promise<void> {
    await this.#server.post(`${ownerPath(ownerId)}/stop`, {});
  }

  async end(ownerId: string): Promise<void> {
    await this.#server.post(`${ownerPath(ownerId)}/end`, {});
  }

  /** Releases files by their fences, so that a file that another owner holds by now stays with that owner. */
  async release(ownerId: string, leases: readonly FileLease[], reason: ReleaseReason): Promise<Released> {
    const all: Released = { released: [], not_released: [] };
    for (const [repository, ours] of byRepository(leases)) {
      for (let at = 0; at < ours.length; at += filesMax) {
        const fences = Object.fromEntries(
          // With `./`, no path equals the name of a property of every object, which the server rejects.
          ours.slice(at, at + filesMax).map(({ path, fence }) => [`./${path}`, fence]),
        );
        const answer = await this.#release({ owner_id: ownerId, repository, fences, reason });
        all.released.push(...answer.released);
        all.not_released.push(...answer.not_released);
      }
    }
    return all;
  }

  #release(body: object): Promise<Released> {
    return this.#server.post('/api/files/release', body);
  }

  leases(filter: FileFilter): Promise<FileLease[]> {
    return this.#all('leases', filter);
  }

  blockers(filter: FileFilter): Promise<Blocked[]> {
    return this.#all('blockers', filter);
  }

  instruct(
    contentionId: string,
    body: { instruction: Instruction; reason?: string; requested_by?: string },
  ): Promise<Instructed> {
    return this.#server.post(`/api/files/blockers/${encodeURIComponent(contentionId)}/instruct`, body);
  }

  /** Every page of a list. */
  async #all<Row>(name: string, filter: FileFilter): Promise<Row[]> {
    const rows: Row[] = [];
    let cursor: string | undefined;
    do {
      const given = Object.entries({ ...filter, limit: String(pageMax), cursor });
      const query = new URLSearchParams(
        given.filter((entry): entry is [string, string] => entry[1] !== undefined),
      );
      const page = await this.#server.get<Record<string, Row[]> & { next_cursor?: string | null }>(
        `/api/files/${name}?${query}`,
      );
      rows.push(...(page[name] ?? []));
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
    return rows;
  }
}

const ownerPath = (ownerId: string): string => `/api/files/owners/${encodeURIComponent(ownerId)}`;

function byRepository<Item extends { repository: string }>(items: readonly Item[]): Map<string, Item[]> {
  return Map.groupBy(items, ({ repository }) => repository);
}
