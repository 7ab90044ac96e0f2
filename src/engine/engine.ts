import type { Log } from '../log.ts';
import type { Channel } from '../store/channel.ts';
import type { Database } from '../store/database.ts';
import { Changer } from './change.ts';
import { Claimer } from './claim.ts';
import type { EngineContext, EngineSettings } from './context.ts';
import { Reader } from './reads.ts';
import { Reaper } from './reaper.ts';
import { Submitter } from './submit.ts';
import { Waker } from './waker.ts';

export interface EngineOptions {
  database: Database;
  channel: Channel;
  settings: EngineSettings;
  log: Log;
}

/**
 * The use-cases, and the services that run beside them. The only place that decides: faces translate, the store
 * carries out. `start` begins reaping and waking; `stop` refuses new work, finishes what is under way, and leaves
 * the database open for whoever opened it.
 */
export class Engine {
  readonly submitter: Submitter;
  readonly claimer: Claimer;
  readonly changer: Changer;
  readonly reader: Reader;
  readonly reaper: Reaper;
  readonly waker: Waker;
  readonly settings: EngineSettings;
  readonly database: Database;

  constructor({ database, channel, settings, log }: EngineOptions) {
    this.database = database;
    this.settings = settings;
    this.waker = new Waker(channel);
    this.reaper = new Reaper({ database, waker: this.waker, maxClaims: settings.maxClaims, log });
    const context: EngineContext = { database, settings, waker: this.waker, reaper: this.reaper };
    this.submitter = new Submitter(context);
    this.claimer = new Claimer(context);
    this.changer = new Changer(context);
    this.reader = new Reader(context);
  }

  start(): void {
    this.waker.start();
    this.reaper.start();
  }

  async stop(): Promise<void> {
    await Promise.all([this.submitter.close(), this.claimer.close(), this.changer.close()]);
    await this.reaper.stop();
    await this.waker.stop();
  }
}
