import type { Lost } from '../load/heartbeat-tasks.ts';
import type { LeaseSet } from '../load/lease-set.ts';
import type { Sizes } from '../sizes.ts';

/** Nothing that is measured here takes an hour. */
const ttlS = 3_600;

/** What lives in the stores of the scenarios. The numbers are theirs alone, because in a smoke run all share a store. */
export const sets = {
  frames: ({ liveLeases }: Sizes): LeaseSet => ({ set: 1, leases: liveLeases, perWorker: 50, ttlS }),
  framesInARow: ({ liveLeases }: Sizes): LeaseSet => ({
    set: 9,
    leases: liveLeases,
    perWorker: 50,
    inARow: true,
    ttlS,
  }),
  singly: ({ liveLeases }: Sizes): LeaseSet => ({ set: 2, leases: liveLeases, perWorker: 1, ttlS }),
  lone: (): LeaseSet => ({ set: 3, leases: 1, perWorker: 1, ttlS }),
  unary: ({ liveLeases }: Sizes): LeaseSet => ({ set: 4, leases: liveLeases, perWorker: 1, ttlS }),
  metered: ({ liveLeases }: Sizes): LeaseSet => ({ set: 20, leases: liveLeases, perWorker: 50, ttlS }),
  million: (sizes: Sizes): LeaseSet => ({ ...kept(sizes), set: 5, inARow: true }),
  millionByTurns: (sizes: Sizes): LeaseSet => ({ ...kept(sizes), set: 10 }),
  workers: ({ workers, workersFirstS: firstS }: Sizes): LeaseSet => ({
    set: 6,
    leases: workers,
    perWorker: 1,
    ttlS: 30,
    firstS,
  }),
  beside: ({ expiringBeside, besideFirstS: firstS }: Sizes): LeaseSet => ({
    set: 7,
    leases: expiringBeside,
    perWorker: 50,
    ttlS: 60,
    firstS,
  }),
  expiring: ({ expiring, expiringFirstS: firstS }: Sizes): LeaseSet => ({
    set: 8,
    leases: expiring,
    perWorker: 50,
    ttlS: 5,
    firstS,
  }),
};

const kept = ({ keptLeases, keptFirstS }: Sizes) => ({
  leases: keptLeases,
  perWorker: 50,
  ttlS: 60,
  firstS: keptFirstS,
});

/** What to say where leases were lost that somebody kept, or where heartbeats were not answered. */
export function lossesIn(rounds: readonly (Lost & { unanswered?: number })[]): string | undefined {
  const lost = rounds.reduce((sum, round) => sum + round.lost, 0);
  const first = rounds.find(({ firstLost }) => firstLost !== undefined)?.firstLost;
  if (lost > 0) return `${lost} leases were lost although they were kept, the first being ${first}`;
  const unanswered = rounds.reduce((sum, round) => sum + (round.unanswered ?? 0), 0);
  return unanswered > 0 ? `${unanswered} frames of heartbeats were never answered` : undefined;
}
