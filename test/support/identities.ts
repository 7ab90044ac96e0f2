/** Callers of a server by every way in: gRPC, Connect and REST, each with the same credential. */

import { rename, writeFile } from 'node:fs/promises';
import { request as plainRequest } from 'node:http';
import { request as secureRequest } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { ConnectError } from '@connectrpc/connect';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import { temporaryFolder } from './cleanup.ts';
import type { TestServer } from './server.ts';

export interface Tls {
  ca: string;
  cert?: string;
  key?: string;
}

export const portOf = (address: string): number => Number(address.split(':').at(-1));

/** A file of access rules. */
export async function writeRules(...rules: object[]): Promise<string> {
  const path = join(await temporaryFolder('rules'), 'rules.json');
  await replaceRules(path, ...rules);
  return path;
}

/** Replaces the file at once, so that a server never reads half of it. */
export async function replaceRules(path: string, ...rules: object[]): Promise<void> {
  await writeFile(`${path}.next`, JSON.stringify({ rules }));
  await rename(`${path}.next`, path);
}

interface Answer {
  status: number;
  said: string;
}

export function ask(
  on: TestServer,
  path: string,
  { method = 'GET', token, tls }: { method?: string; token?: string | undefined; tls?: Tls | undefined },
): Promise<Answer> {
  const headers = {
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(method === 'GET' ? {} : { 'content-type': 'application/json' }),
  };
  const send = tls ? secureRequest : plainRequest;
  const options = { host: '127.0.0.1', port: portOf(on.http), path, method, headers, agent: false, ...tls };
  return new Promise((resolve, reject) => {
    send(options, (response) => {
      text(response).then((said) => resolve({ status: response.statusCode ?? 0, said }), reject);
    })
      .on('error', reject)
      .end(method === 'GET' ? undefined : '{}');
  });
}

/** Who the server takes the caller for, or the code of its refusal. */
export interface Verdict {
  grpc: string;
  connect: string;
  rest: string;
}

/** `closed` where the connection does not come about. */
export async function verdictOf(on: TestServer, token?: string, tls?: Tls): Promise<Verdict> {
  const client = connectLeasehold(`${tls ? 'https' : 'http'}://127.0.0.1:${portOf(on.grpc)}`, {
    apiKey: () => token,
    ...tls,
  });
  const grpc = client.keys.whoAmI({}, { timeoutMs: 10_000 }).then(
    ({ kind, id }) => `${kind} ${id}`,
    (error: unknown) => /^(\w+): /.exec(ConnectError.from(error).rawMessage)?.[1] ?? 'closed',
  );
  const over = (path: string, method: string) =>
    ask(on, path, { method, token, tls }).then(
      ({ said }) => {
        const { kind, id, code, message } = JSON.parse(said) as Record<string, string>;
        if (kind !== undefined) return `${kind} ${id}`;
        return /^(\w+): /.exec(message ?? '')?.[1] ?? code ?? said;
      },
      () => 'closed',
    );
  try {
    return {
      grpc: await grpc,
      connect: await over('/leasehold.v1.KeysService/WhoAmI', 'POST'),
      rest: await over('/api/access/whoami', 'GET'),
    };
  } finally {
    client.close();
  }
}

export const everywhere = (verdict: string): Verdict => ({
  grpc: verdict,
  connect: verdict,
  rest: verdict,
});
