import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { RoundMeter } from '../../telemetry/service-metrics.ts';

/**
 * Rounds are at least so far apart. What is due still after one is held by somebody else, who will be done soon; and with many
 * leases some are always due, nearly all of them renewed.
 */
const pauseMinMs = 25;

export interface DeadlineTaskOptions {
  /** How long until something is due; not above 0 where something is, and null where nothing is known of. */
  findDue(): Promise<number | null>;
  handle(): Promise<unknown>;
  meter: RoundMeter;
  onFailed(error: unknown): void;
  sleepMaxMs: number;
}

/** Rounds that handle what is due. Most of the time nothing is, and one look tells so and until when. */
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
