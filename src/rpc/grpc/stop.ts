import type { Server } from '@grpc/grpc-js';
import type { WaitGroup } from '../../lib/async/wait-group.ts';

/** Once every call is answered, connections that stay open for some other reason get this long to take the answers. */
const finalAnswersMs = 300;

/** Accepts nothing new, and lets calls finish for so long. */
export function stopServer(server: Server, calls: WaitGroup, patienceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      server.forceShutdown();
      resolve();
    };
    let force = setTimeout(end, patienceMs);
    let over = false;
    // A connection stays open for as long as a client has not ended its half of a stream, though all has been said on it.
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
