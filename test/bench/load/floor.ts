/**
 * The floor under the faces: the store's own statements, as large as the engine makes them at its best, with no
 * network, no decoding and no checks. What the server does less than this is what the faces and the engine cost.
 */
import type { Database } from '../../../src/store/database.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { claimJobs } from '../../../src/store/sql/jobs/claim.ts';
import { type NewJob, submitJobs } from '../../../src/store/sql/jobs/submit.ts';
import { noMarks } from '../../../src/store/sql/queue/heads.ts';
import { type Lane, type LaneTarget, laneText, makeLanes } from '../../../src/store/sql/queue/lanes.ts';
import { drive, forCount, forDuration, type Round } from './drive.ts';
import { job } from './messages.ts';
import { openStore } from './seed.ts';

/** As the engine does it: jobs in one statement, and statements at the same time. */
const jobsPerSubmit = 1_000;
const submitFlights = 2;
/** What 64 claimers make at most. */
const slotsPerClaim = 64;
const claimTtlMs = 3_600_000;

export interface FloorPlace {
  url?: string | undefined;
  dataDir: string;
}

/** Where, and which stream the jobs are for, if any. */
export interface FloorOrder extends FloorPlace {
  stream?: string;
}

export class Floor {
  readonly #database: Database;
  readonly #template: Omit<NewJob, 'jobId'>;
  readonly #place: LaneTarget;

  private constructor(database: Database, place: LaneTarget, stream: string | null) {
    this.#database = database;
    this.#place = place;
    this.#template = {
      addonId: job.addonId,
      jobType: job.jobType,
      stream,
      priority: 2,
      costUnits: job.costUnits,
      constraints: '{}',
      payload: JSON.stringify(job.payload),
      clientRequestId: null,
      unique: false,
      tags: job.tags,
      maxRuntimeS: null,
      maxAttempts: 1,
      retryBackoffS: 2,
      runAtMs: null,
      bytes: JSON.stringify(job.payload).length,
    };
  }

  static async open({ stream: named, ...place }: FloorOrder): Promise<Floor> {
    const stream = named ?? null;
    const database = await openStore(place);
    await migrate(database);
    const lane: Lane = {
      stream,
      addonId: job.addonId,
      jobType: job.jobType,
      requires: [],
      heavy: [],
      unique: false,
    };
    const words = laneText(lane);
    const lanePlace = (await makeLanes(database, new Map([[words, lane]]))).get(words);
    if (lanePlace === undefined) throw new Error('the store made no lane');
    return new Floor(database, lanePlace, stream);
  }

  submit(durationMs: number): Promise<Round> {
    return drive(
      submitFlights,
      forDuration(durationMs, () => this.#submit(jobsPerSubmit)),
    );
  }

  async fill(jobs: number): Promise<void> {
    await drive(
      submitFlights,
      forCount(Math.ceil(jobs / jobsPerSubmit), () => this.#submit(jobsPerSubmit)),
    );
  }

  claim(jobs: number): Promise<Round> {
    const filter = {
      streams: null,
      addonId: null,
      jobTypes: null,
      maxCostUnits: null,
      available: [],
      refused: [],
    };
    const slots = Array.from({ length: slotsPerClaim }, (_, i) => ({
      workerId: `worker-${i}`,
      holder: null,
      requestId: null,
    }));
    // None of these costs more than all there is.
    const rules = {
      claimTtlMs,
      capacityTotal: jobs,
      lowWaterMarks: noMarks,
    };
    return drive(
      1,
      forCount(
        Math.ceil(jobs / slotsPerClaim),
        async () => (await claimJobs(this.#database, filter, slots, rules)).records.length,
      ),
    );
  }

  close(): Promise<void> {
    return this.#database.close();
  }

  async #submit(jobs: number): Promise<number> {
    const batch = Array.from({ length: jobs }, () => this.#template);
    const places = batch.map(() => this.#place);
    await submitJobs(this.#database, batch, { places, keepsMessages: false });
    return jobs;
  }
}
