/**
 * How the clients of gRPC connections behave: calls that end at once, before they are answered.
 *
 * A client that opens calls and resets them, or makes the server reset them (CVE-2023-44487,
 * CVE-2025-8671), costs the server the start of each call and waits for nothing. Node bounds the resets
 * of a client by a thousand for each connection, and those that a client provokes not at all.
 *
 * Guarantees: a connection may have `burst` calls that end within `soonMs`, and `perS` more each second.
 * With the next one it is closed, and its address may open no connection for a while. Calls that were
 * answered, that waited for longer, or whose deadline has passed do not count.
 */
import { constants, type Http2Session } from 'node:http2';
import type { Connections } from '../../lib/net/connections.ts';

const burst = 100;
const perS = 20;
const soonMs = 50;

interface Conduct {
  /** Calls that ended at once, less those that time has forgiven. */
  count: number;
  at: number;
}

export class ConnectionConduct {
  readonly #connections: Connections | undefined;
  readonly #bySession = new WeakMap<Http2Session, Conduct>();

  constructor(connections: Connections | undefined) {
    this.#connections = connections;
  }

  /** A call that began at this time has ended before it was answered. The connection may be gone. */
  abandoned(session: Http2Session | undefined, beganAt: number): void {
    const now = performance.now();
    if (now - beganAt > soonMs || !session || session.destroyed) return;
    const conduct = this.#bySession.get(session) ?? { count: 0, at: now };
    conduct.count = Math.max(0, conduct.count - ((now - conduct.at) / 1_000) * perS) + 1;
    conduct.at = now;
    this.#bySession.set(session, conduct);
    if (conduct.count <= burst) return;
    this.#connections?.blame(session.socket.remoteAddress);
    session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}
