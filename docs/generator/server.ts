/** A server of its own, on free ports and an embedded database that is removed afterwards. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '../../src/config.ts';
import { createLog } from '../../src/lib/log.ts';
import { startServer } from '../../src/server.ts';
import type { Declared } from '../../src/telemetry/registry.ts';
import type { OpenApi } from './schemas.ts';

export interface DescribedServer {
  openApi: OpenApi;
  metrics: readonly Declared[];
}

/** Answers with what `use` makes of what a server says of itself. */
export async function withServer<T>(use: (server: DescribedServer) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-docs-'));
  try {
    const anyPort = { host: '127.0.0.1', port: 0 };
    const config = {
      ...readConfig({}, {}),
      dataDir: join(folder, 'data'),
      httpAddr: anyPort,
      grpcAddr: anyPort,
    };
    const server = await startServer(config, createLog({ level: 'error', human: false }));
    try {
      const answer = await fetch(`http://${server.http.host}:${server.http.port}/openapi.json`);
      return await use({
        openApi: (await answer.json()) as OpenApi,
        metrics: server.metrics.registry.declared,
      });
    } finally {
      await server.stop();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
