import { expect } from 'chai';
import fc from 'fast-check';
import { DomainError } from '../../../src/domain/errors.ts';
import type { FileOutcome, InstructOutcome } from '../../../src/domain/files/file-lease.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { acquireFilesAs, holdersOf, releaseFilesAs, wipeFiles } from '../../support/file-lease-helpers.ts';
import { letFileTimePass } from '../../support/files.ts';
import { caller, engineOn, type TestedEngine } from '../../support/jobs.ts';
import { type Answer, FileModel } from './file-model.ts';

const paths = ['p', 'q', 'r'] as const;

const some = fc.uniqueArray(fc.constantFrom(...paths), { minLength: 1 });
const nat = fc.nat({ max: 5 });

/** Half of all steps pass time or acquire again, because contentions occur there. */
const stepOf = (owners: readonly string[]) => {
  const owner = fc.constantFrom(...owners);
  return fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('acquire' as const), owner, paths: some }) },
    // Times are multiples of ten seconds, so that the real duration of a run changes no result.
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('pass' as const),
        seconds: fc.constantFrom(10, 20, 30, 50, 60, 180, 600),
        /** Owners that send heartbeats meanwhile. */
        alive: fc.subarray([...owners]),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('beat' as const), owner }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('stop' as const, 'activity' as const), owner }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('end' as const), owner }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('release' as const),
        owner,
        paths: some,
        reason: fc.constantFrom('COMMITTED' as const, 'FAILED' as const, 'ENDED' as const),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('instruct' as const),
        contention: nat,
        instruction: fc.constantFrom('RETRY' as const, 'ABANDON' as const, 'FORCE_RELEASE' as const),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('reap' as const) }) },
  );
};
type Step = ReturnType<typeof stepOf> extends fc.Arbitrary<infer One> ? One : never;

/** Owners, and the parent of each sub-agent. */
interface Cast {
  owners: readonly string[];
  parents: Readonly<Record<string, string>>;
}

/** Owners that stay alive for more than a minute send heartbeats at this interval. */
const beatS = 50;

class Play {
  readonly #engine: TestedEngine;
  readonly #store: TestDatabase;
  readonly #cast: Cast;
  readonly #model: FileModel;
  /** The real contention ids, indexed by the model's numbers. */
  readonly #ids: string[] = [];
  /** Prefix that makes the owners of this run unique. */
  readonly #run = newId();

  constructor(engine: TestedEngine, store: TestDatabase, cast: Cast) {
    this.#cast = cast;
    this.#model = new FileModel(cast.parents);
    this.#engine = engine;
    this.#store = store;
  }

  async step(one: Step): Promise<void> {
    const engine = this.#engine;
    const model = this.#model;
    const real = (name: string) => `${this.#run} ${name}`;
    if (one.do === 'pass') await this.#pass(one.seconds, one.alive);
    else if (one.do === 'acquire') {
      const known = model.contentions;
      const expected = model.acquire(one.owner, one.paths);
      const parent = this.#cast.parents[one.owner];
      const outcome = await acquireFilesAs(
        engine,
        { ownerId: real(one.owner), ...(parent === undefined ? {} : { parentId: real(parent) }) },
        ...one.paths,
      );
      if (model.contentions > known && outcome.kind === 'contended')
        this.#ids.push(outcome.contention.contentionId);
      this.#compare(outcome, expected);
    } else if (one.do === 'beat') await this.#beat(one.owner);
    else if (one.do === 'stop' || one.do === 'activity') {
      const expected = model.show(one.owner, one.do);
      await this.#says(expected, engine.services.fileOwnerUpdater[one.do](real(one.owner), caller));
    } else if (one.do === 'end') {
      const expected = model.end(one.owner);
      await this.#says(expected, engine.files.endOwner(real(one.owner), caller));
    } else if (one.do === 'release') {
      const expected = model.release(one.owner, one.paths, one.reason === 'COMMITTED');
      await this.#says(expected, releaseFilesAs(engine, real(one.owner), one.reason, ...one.paths));
    } else if (one.do === 'instruct') {
      const id = this.#ids[one.contention];
      if (id === undefined) return;
      const expected = model.instruct(one.contention, one.instruction);
      const command = { instruction: one.instruction };
      const outcome = await engine.services.contentionResolver
        .instruct(id, command, caller)
        .catch((error: unknown) => (error instanceof DomainError ? error : Promise.reject(error)));
      if (!(outcome instanceof DomainError)) this.#compare(outcome, expected);
      else expect({ kind: 'refused', code: outcome.code }).to.deep.equal(expected);
    } else await this.compareHolders();
  }

  /** After a round of the reaper, the database and the model agree on the holder of every file. */
  async compareHolders(): Promise<void> {
    await this.#engine.services.fileReaper.runOnce();
    const expected = [...this.#model.holders].map(([path, name]) => [path, `${this.#run} ${name}`]);
    expect(await holdersOf(this.#store.database)).to.deep.equal(Object.fromEntries(expected));
  }

  async #pass(seconds: number, alive: readonly string[]): Promise<void> {
    for (let left = seconds; left > 0; left -= beatS) {
      this.#model.pass(Math.min(left, beatS));
      await letFileTimePass(this.#store.database, Math.min(left, beatS) * 1000);
      // A borrowed file returns when its owner dies, so the time of detection matters. A server detects it
      // within a second.
      if (Object.keys(this.#cast.parents).length > 0) await this.#engine.services.fileReaper.runOnce();
      for (const name of alive) await this.#beat(name);
    }
  }

  async #beat(name: string): Promise<void> {
    const expected = this.#model.beat(name);
    const [verdict] = await Promise.all(
      await this.#engine.services.ownerHeartbeats.heartbeatEach([
        { ownerId: `${this.#run} ${name}`, holder: null },
      ]),
    );
    if (verdict?.kind === 'extended')
      expect(verdict.lostFiles.map(({ path }) => path).sort()).to.deep.equal(expected);
    else expect(verdict?.code).to.equal(expected);
  }

  async #says(expected: Answer, call: Promise<unknown>): Promise<void> {
    const answer = await call.then(
      () => ({ kind: 'granted' }),
      (error: unknown) =>
        error instanceof DomainError ? { kind: 'refused', code: error.code } : Promise.reject(error),
    );
    expect(answer).to.deep.equal(expected);
  }

  #compare(outcome: FileOutcome | InstructOutcome, expected: Answer): void {
    if (outcome.kind === 'contended' || outcome.kind === 'halted') {
      const one = outcome.kind === 'contended' ? outcome.contention : outcome.report;
      const contention = this.#ids.indexOf(one.contentionId);
      expect({ kind: outcome.kind, contention, paths: one.paths.toSorted() }).to.deep.equal(expected);
    } else expect({ kind: outcome.kind }).to.deep.equal(expected);
  }
}

onEveryEngine((kind) => {
  describe('file leases compared with FileModel', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    async function behaveAlike(cast: Cast): Promise<void> {
      const numRuns = Number(process.env.LEASEHOLD_TEST_FILE_RUNS ?? 40);
      await fc.assert(
        fc.asyncProperty(
          fc.array(stepOf(cast.owners), { minLength: 10, maxLength: 40, size: 'max' }),
          async (steps) => {
            await wipeFiles(store.database);
            await store.database.query('delete from file_owners', []);
            const play = new Play(engine, store, cast);
            for (const one of steps) await play.step(one);
            await play.compareHolders();
          },
        ),
        { numRuns, seed: Number(process.env.LEASEHOLD_TEST_MODEL_SEED || 20_250_101) },
      );
    }

    it('grants, contends, halts, instructs, expires and revives as modeled (B1, B2, B6)', async function () {
      this.timeout(180_000);
      await behaveAlike({ owners: ['a', 'b', 'c'], parents: {} });
    });

    it('lends files to sub-agents and returns them to parents as in the model (B5)', async function () {
      this.timeout(180_000);
      const parents = { child: 'parent', sibling: 'parent', grandchild: 'child' };
      await behaveAlike({ owners: ['parent', 'child', 'sibling', 'grandchild', 'other'], parents });
    });
  });
});
