import type { Duplex } from 'node:stream';
import type pg from 'pg';

/** Time the other side has to close a connection before the socket is destroyed. */
const timeoutMs = 500;

/** Parts of a `pg` client that its types leave out. */
export interface ClientInternals {
  connection: { stream: Duplex & { bytesRead?: number }; emit(event: 'error', error: Error): void };
  /** False from the moment a statement is sent until its answer is complete. */
  readyForQuery: boolean | null;
  processID: number | null;
}

export const internalsOf = (client: object): ClientInternals => client as unknown as ClientInternals;

/** Ends a connection. If the other side does not respond in time, the socket is destroyed. */
export async function hangUp(client: pg.Client): Promise<void> {
  const late = setTimeout(() => internalsOf(client).connection.stream.destroy(), timeoutMs);
  try {
    await client.end();
  } finally {
    clearTimeout(late);
  }
}
