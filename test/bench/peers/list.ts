/** The peers, what they are measured in, and how each is brought up in a process of its own. */
import { readFile } from 'node:fs/promises';
import { findRedis, type RedisSettings, startRedis } from '../../support/redis.ts';
import type { PeerName } from '../load/peer-tasks.ts';
import { LoadProcess } from '../load-process.ts';
import type { Bench } from '../scenario.ts';
import type { PeerMode } from './peer.ts';

interface PeerKind {
  module: PeerName;
  /** What it is called where the mode makes no difference. */
  name: string;
  /** In which modes it is drained, and what it is called then. */
  modes: Partial<Record<PeerMode, string>>;
  /** Settings of the Redis that it has, where it wants one. */
  redis?: RedisSettings;
}

/** As Redis is set when nobody sets anything: snapshots, after an hour, five minutes or one, by how much has changed. */
const snapshots = { save: '3600 1 300 100 60 10000' };
/** As durable as a PostgreSQL: no command is answered before the disk has it. */
const everyCommand = { appendonly: 'yes', appendfsync: 'always' };

export const peerKinds: readonly PeerKind[] = [
  {
    module: 'graphile-worker',
    name: 'graphile-worker',
    modes: { default: 'graphile-worker, default', fastest: 'graphile-worker, local queue' },
  },
  {
    module: 'pg-boss',
    name: 'pg-boss',
    modes: { default: 'pg-boss, default', fastest: 'pg-boss, batches' },
  },
  {
    module: 'bullmq',
    name: 'bullmq',
    modes: { default: 'bullmq, default', fastest: 'bullmq, 100 at once' },
    redis: snapshots,
  },
  {
    module: 'bullmq',
    name: 'bullmq, every command on disk',
    modes: { fastest: 'bullmq, 100 at once, every command on disk' },
    redis: everyCommand,
  },
];

/** Which versions of them are measured. */
export async function peerVersions(): Promise<Record<string, string>> {
  const names = [...new Set(peerKinds.map(({ module }) => module))];
  const versions = names.map(async (name) => {
    const file = new URL(`../../../node_modules/${name}/package.json`, import.meta.url);
    const { version } = JSON.parse(await readFile(file, 'utf8')) as { version: string };
    return [name, version] as const;
  });
  return Object.fromEntries(await Promise.all(versions));
}

/** A peer that runs, until `close`. */
export interface OpenPeer extends Pick<PeerKind, 'name' | 'modes'> {
  load: LoadProcess;
  /** The server that it has for itself. */
  server?: { pid: number };
  /** What autovacuum would have done by the time there is much to do. */
  vacuum(): Promise<void>;
  close(): Promise<void>;
}

/** All that this machine can have, at the same time. */
export async function openPeers(bench: Bench): Promise<OpenPeer[]> {
  const able = peerKinds.filter(({ redis }) => redis === undefined || findRedis() !== undefined);
  if (able.length < peerKinds.length)
    bench.note('bullmq is not covered: there is no redis-server on the PATH');
  return Promise.all(able.map((kind) => openOne(kind, bench)));
}

async function openOne(kind: PeerKind, { stage }: Bench): Promise<OpenPeer> {
  const { module, name, modes, redis: settings } = kind;
  const load = await LoadProcess.start();
  const redis = settings && (await startRedis(settings));
  const store = redis ? undefined : await stage.newStore();
  await load.run('openPeer', { name: module, url: redis?.url ?? (store?.place.url as string) });
  return {
    name,
    modes,
    load,
    ...(redis ? { server: { pid: redis.pid as number } } : {}),
    vacuum: async () => store?.vacuum(),
    async close() {
      await load.run('close');
      await load.stop();
      await redis?.stop();
    },
  };
}
