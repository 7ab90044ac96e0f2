/**
 * Verifies messages again that have been pending for long, whichever server read them.
 *
 * Guarantees: a message that a stopped server had read is claimed by a live one. A message that was not
 * removed, because Redis or the database was unavailable, is removed. Long-pending messages are claimed in
 * slices, a few streams at a time, from end to end. A right message stays pending here, and is verified again
 * after the same time. Consumers without pending messages that have been idle for `silentMs` are deleted.
 */
import type { Log } from '../../lib/log.ts';
import type { RedisClient, RedisConnection } from './connection.ts';
import { type Entry, group, keyOf } from './keys.ts';
import type { RedisVerifier } from './verifier.ts';

export const takeoverMs = 15_000;
export const silentMs = 60_000;
/** Streams in one round, and messages of each. */
const streamsPerRound = 20;
const sliceMessages = 200;
const walkStart = '0-0';

export interface TakeoverOptions {
  link: RedisConnection;
  checker: RedisVerifier;
  consumer: string;
  silentMs?: number;
  log: Log;
}

export class RedisPendingClaimer {
  readonly #options: TakeoverOptions;
  /** The position of the walk through each stream. */
  readonly #cursors = new Map<string, string>();
  #turn = 0;

  constructor(options: TakeoverOptions) {
    this.#options = options;
  }

  /** Claims the next slice of each of the next streams. */
  async runOnce(streams: readonly string[]): Promise<void> {
    const { link, log } = this.#options;
    const first = this.#turn < streams.length ? this.#turn : 0;
    this.#turn = first + streamsPerRound;
    const round = streams.slice(first, this.#turn);
    const done = await Promise.allSettled(
      round.flatMap((stream) => [
        this.#claimPending(stream),
        link.run((client) => this.#deleteSilent(client, stream)),
      ]),
    );
    const failed = done.find((one) => one.status === 'rejected');
    if (failed) log.debug('pending messages could not be looked at', { error: failed.reason });
  }

  async #claimPending(stream: string): Promise<void> {
    const { link, checker, consumer } = this.#options;
    const start = this.#cursors.get(stream) ?? walkStart;
    const { nextId, messages } = await link.run((client) =>
      client.xAutoClaim(keyOf(stream), group, consumer, takeoverMs, start, { COUNT: sliceMessages }),
    );
    if (nextId === walkStart) this.#cursors.delete(stream);
    else this.#cursors.set(stream, nextId);
    // Redis 6.2 returns null for a deleted message.
    await checker.check(
      stream,
      (messages as (Entry | null)[]).filter((entry) => entry !== null),
    );
  }

  async #deleteSilent(client: RedisClient, stream: string): Promise<void> {
    const { consumer, silentMs: limitMs = silentMs } = this.#options;
    const consumers = await client.xInfoConsumers(keyOf(stream), group);
    const silent = consumers.filter(
      ({ name, pending, idle }) => name !== consumer && pending === 0 && idle > limitMs,
    );
    await Promise.all(silent.map(({ name }) => client.xGroupDelConsumer(keyOf(stream), group, name)));
  }
}
