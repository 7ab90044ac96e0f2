/** The floor under heartbeats: the store's own statement, on a store that is seeded for it; see `floor.ts`. */

import type { Heartbeat } from '../../../src/domain/leases/lease.ts';
import type { Database } from '../../../src/store/database.ts';
import { extendLeases } from '../../../src/store/sql/leases/extend.ts';
import { drive, forDuration, type Round, takeTurns } from './drive.ts';
import type { FloorPlace } from './floor.ts';
import { type LeaseSet, leaseId, leasesOf, scattered, workerName, workersOf } from './lease-set.ts';
import { openStore, seedInto } from './seed.ts';

/** As the engine does it: heartbeats in one statement, and statements at the same time. */
const heartbeatsPerStatement = 2_000;
const flights = 3;

export class HeartbeatFloor {
  readonly #database: Database;

  private constructor(database: Database) {
    this.#database = database;
  }

  /** Leaves the store to be vacuumed. */
  static async open(place: FloorPlace, sets: readonly LeaseSet[]): Promise<HeartbeatFloor> {
    const database = await openStore(place);
    await seedInto(database, sets);
    return new HeartbeatFloor(database);
  }

  beat(set: LeaseSet, durationMs: number): Promise<Round> {
    // A statement passes over rows that another one has locked.
    const next = takeTurns(batchesOf(set), flights);
    return drive(
      flights,
      forDuration(durationMs, (lane) => this.#extend(next(lane))),
    );
  }

  close(): Promise<void> {
    return this.#database.close();
  }

  async #extend(batch: readonly Heartbeat[]): Promise<number> {
    const { results } = await extendLeases(this.#database, batch, { wait: false });
    const other = results.find(({ kind }) => kind !== 'extended');
    if (other) throw new Error(`a lease was to be extended, and it was '${other.kind}'`);
    return results.length;
  }
}

/** The frames of workers, as they come together in the server. */
function batchesOf(set: LeaseSet): Heartbeat[][] {
  const extensions = scattered(workersOf(set)).flatMap((worker) =>
    leasesOf(set, worker).map((lease) => ({
      leaseId: leaseId(set, lease),
      workerId: workerName(worker),
      holder: null,
      token: null,
      jobId: null,
      progress: null,
      message: null,
    })),
  );
  const size = Math.min(heartbeatsPerStatement, Math.ceil(extensions.length / flights));
  const count = Math.ceil(extensions.length / size);
  return Array.from({ length: count }, (_, i) => extensions.slice(i * size, (i + 1) * size));
}
