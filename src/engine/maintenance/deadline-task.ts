import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { RoundMeter } from '../../telemetry/service-metrics.ts';

/**
 * Minimum time between rounds. A row that is still due after a round is locked by another transaction, which
 * will end soon. And with many leases some are always due, nearly all of them renewed.
 */
const pauseMinMs = 25;

export interface DeadlineTaskOptions {
  /** How long until a row is due; not above 0 if one is due now, and null if none is known. */
  findDue(): Promise<number | null>;
  handle(): Promise<unknown>;
  meter: RoundMeter;
  onFailed(error: unknown): void;
  sleepMaxMs: number;
}

/** A task that handles due rows. Usually none is due, and one query shows that and until when. */
export function deadlineTask({
  findDue,
  handle,
  meter,
  onFailed,
  sleepMaxMs,
}: DeadlineTaskOptions): PeriodicTask {
  const lookAndHandle = async () => {
    const dueInMs = await findDue();
    if (dueInMs === null || dueInMs > 0) return dueInMs;
    await handle();
    return findDue();
  };
  return new PeriodicTask({
    run: async () => {
      const dueInMs = (await meter.time(lookAndHandle)) ?? sleepMaxMs;
      return Math.min(Math.max(dueInMs, pauseMinMs), sleepMaxMs);
    },
    onFailed,
    failedMs: sleepMaxMs,
  });
}
