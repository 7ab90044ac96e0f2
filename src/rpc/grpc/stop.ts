import type { Server } from '@grpc/grpc-js';
import type { WaitGroup } from '../../lib/async/wait-group.ts';

/** How long connections that stay open after every call is answered get to receive the answers. */
const finalAnswersMs = 300;

/** Accepts no new calls, lets running ones finish for `patienceMs`, then closes all connections. */
export function stopServer(server: Server, calls: WaitGroup, patienceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      server.forceShutdown();
      resolve();
    };
    let force = setTimeout(end, patienceMs);
    let over = false;
    // A connection stays open until the client ends its half of a stream, even if the server has ended its
    // own.
    void calls.wait().then(() => {
      clearTimeout(force);
      if (!over) force = setTimeout(end, Math.min(finalAnswersMs, patienceMs));
    });
    server.tryShutdown(() => {
      over = true;
      clearTimeout(force);
      resolve();
    });
  });
}
