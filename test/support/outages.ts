import type { EngineSettings } from '../../src/engine/context/engine-context.ts';
import type { TestDatabase, TestEngine } from './engines.ts';
import { engineOn, engineSettings, type TestedEngine } from './jobs.ts';

interface OutageStage {
  store: TestDatabase;
  /** The server that was alive before the outage. */
  alive: TestedEngine;
  /** Starts a server that has not read anything yet. It stops after the test. */
  newServer(settings?: EngineSettings): TestedEngine;
}

/** One database for the tests of a suite, emptied before each, and servers before and after an outage. */
export function outageForEach(
  kind: TestEngine,
  wipe: (database: TestDatabase['database']) => Promise<unknown>,
): Readonly<OutageStage> {
  const later: TestedEngine[] = [];
  const stage = {
    newServer(settings = engineSettings) {
      const engine = engineOn(stage.store.database, settings);
      later.push(engine);
      return engine;
    },
  } as OutageStage;
  before(async () => {
    stage.store = await kind.open();
  });
  after(() => stage.store.close());
  beforeEach(async () => {
    await wipe(stage.store.database);
    stage.alive = engineOn(stage.store.database);
    await stage.alive.prepare();
  });
  afterEach(async () => {
    for (const engine of [stage.alive, ...later.splice(0)]) await engine.stop();
  });
  return stage;
}
