/** The price of sharing a machine: a process that burns its core and sends nothing. */
import type { Attack } from '../wire.ts';

export const burn: Attack = {
  name: 'burn',
  about: 'a process that uses its core and sends nothing',
  async run(_target, signal) {
    let units = 0;
    while (!signal.aborted) {
      const until = performance.now() + 100;
      while (performance.now() < until) units++;
      await new Promise((resolve) => setImmediate(resolve));
    }
    return { units, connections: 0 };
  },
};
