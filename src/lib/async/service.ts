/**
 * A background service. `start` and `stop` may be called twice; `stop` settles when nothing of it runs any
 * more. `runOnce` does one round at once; tests call it.
 */
export interface Service {
  start(): void | Promise<void>;
  runOnce(): Promise<unknown>;
  stop(): Promise<void>;
}
