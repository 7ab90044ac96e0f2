import { expect } from 'chai';
import { fileIdOf } from '../../../src/domain/files/file-paths.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  acquireFiles,
  acquireFilesAs,
  beatOwner,
  contended,
  granted,
  halted,
  holdersOf,
  releaseFiles,
  releaseFilesAs,
  repository,
  wipeFiles,
} from '../../support/file-lease-helpers.ts';
import { letFileTimePass } from '../../support/files.ts';
import { caller, engineOn, type TestedEngine } from '../../support/jobs.ts';
import { Holder, moreServers } from '../../support/lease-helpers.ts';

onEveryEngine((kind) => {
  describe('concurrent requests for the same files', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let others: Awaited<ReturnType<typeof moreServers>>;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
      // The embedded database serves one server only.
      others =
        kind.name === 'postgresql' ? await moreServers(store, 2) : { engines: [], stop: async () => {} };
    });
    beforeEach(() => wipeFiles(store.database));
    after(async () => {
      await others.stop();
      await engine.stop();
      await store.close();
    });
    const servers = () => [engine, ...others.engines];
    const serverFor = (i: number): TestedEngine => servers()[i % servers().length] as TestedEngine;

    it('grants one file to one of 60 competitors and names the winner to the others', async function () {
      this.timeout(60_000);
      for (let round = 0; round < 10; round++) {
        const path = `one-${round}`;
        const outcomes = await Promise.all(
          Array.from({ length: 60 }, (_, i) => acquireFiles(serverFor(i), `o${round}-${i}`, path)),
        );
        const winners = outcomes.flatMap((outcome, i) => (outcome.kind === 'granted' ? [i] : []));
        expect(winners).to.have.length(1);
        const winner = `o${round}-${winners[0]}`;
        for (const outcome of outcomes) {
          if (outcome.kind === 'granted') continue;
          if (outcome.kind !== 'contended') expect.fail(outcome.kind);
          expect(outcome.contention.blockers.map(({ ownerId }) => ownerId)).to.deep.equal([winner]);
          const { retryAtMs, deniedAtMs } = outcome.contention;
          expect(retryAtMs - deniedAtMs).to.equal(180_000);
        }
      }
    });

    it("reclaims a dead owner's file once and grants it once", async () => {
      await granted(engine, 'dead', 'p', 'q');
      await letFileTimePass(store.database, 60_500);
      const outcomes = await Promise.all(
        Array.from({ length: 60 }, (_, i) => acquireFiles(serverFor(i), `o${i}`, 'p')),
      );
      expect(outcomes.filter(({ kind: outcome }) => outcome === 'granted')).to.have.length(1);
      const reclaimed = await store.database.query(
        "select from file_events where type = 8 and owner_id = 'dead'",
        [],
      );
      expect(reclaimed).to.have.length(2);
    });

    it('locks pairs of files in opposite orders thousands of times without a deadlock', async function () {
      this.timeout(120_000);
      const deadlocks = async () => {
        const [row] = await store.database.query<{ n: number }>(
          'select deadlocks::int as n from pg_stat_database where datname = current_database()',
          [],
        );
        return row?.n ?? 0;
      };
      const before = await deadlocks();
      const rounds = kind.name === 'postgresql' ? 70 : 20;
      const held = new Map<string, string>();
      const agent = async (number: number) => {
        for (let round = 0; round < rounds; round++) {
          // Each round uses a new owner, because a denied owner would wait for three minutes.
          const ownerId = `pair-${number}-${round}`;
          const pair = number % 2 === 0 ? ['a', 'b'] : ['b', 'a'];
          const server = serverFor(number);
          const outcome = await acquireFiles(server, ownerId, ...pair);
          if (outcome.kind !== 'granted') continue;
          for (const path of pair) {
            expect(held.get(path), `who has ${path} beside ${ownerId}`).to.equal(undefined);
            held.set(path, ownerId);
          }
          for (const path of pair) held.delete(path);
          await releaseFiles(server, ownerId, ...pair.toReversed());
        }
      };
      await Promise.all(Array.from({ length: 30 }, (_, i) => agent(i)));
      expect(await holdersOf(store.database)).to.deep.equal({});
      expect((await deadlocks()) - before).to.equal(0);
    });

    it('never grants a file twice while owners acquire, lose and end concurrently', async function () {
      this.timeout(60_000);
      const paths = ['w', 'x', 'y', 'z'];
      await Promise.all(
        Array.from({ length: 24 }, async (_, i) => {
          const server = serverFor(i);
          for (let round = 0; round < 10; round++) {
            const ownerId = `mix-${i}-${round}`;
            const wanted = paths.filter((_path, at) => (i + round + at) % 3 !== 0);
            const outcome = await acquireFiles(server, ownerId, ...wanted);
            if (round % 3 === 0) await server.files.endOwner(ownerId, caller);
            else if (outcome.kind === 'granted') await releaseFiles(server, ownerId, ...wanted);
            await beatOwner(server, ownerId);
          }
        }),
      );
      const doubly = await store.database.query(
        `select path, fence from (
          select path, fence, type, lag(type) over (partition by path order by event_id) as before
          from file_events where type in (0, 7, 8)
        ) told where type = 0 and before = 0`,
        [],
      );
      expect(doubly, 'grants that follow a grant').to.deep.equal([]);
    });

    it("gives the file to the waiter when FORCE_RELEASE races the holder's release", async () => {
      for (let round = 0; round < 5; round++) {
        const [holder, waiter, path] = [`h${round}`, `w${round}`, `f${round}`];
        await granted(engine, holder, path);
        await contended(engine, waiter, path);
        for (let passed = 0; passed < 4; passed++) {
          await letFileTimePass(store.database, 46_000);
          await beatOwner(engine, holder);
          await beatOwner(engine, waiter);
        }
        const { contentionId } = await halted(engine, waiter, path);
        const command = { instruction: 'FORCE_RELEASE' } as const;
        const [outcome] = await Promise.all([
          serverFor(round).files.instruct(contentionId, command, caller),
          releaseFiles(serverFor(round + 1), holder, path),
          beatOwner(serverFor(round + 2), holder),
          acquireFiles(serverFor(round), holder, `other-${round}`),
        ]);
        expect(outcome.kind).to.equal('granted');
        expect((await holdersOf(store.database))[path]).to.equal(waiter);
      }
    });

    it('leaves one owner per file when its return to the parent races siblings (B5)', async function () {
      this.timeout(60_000);
      for (let round = 0; round < 15; round++) {
        const [parent, child, path] = [`parent-${round}`, `child-${round}`, `lent-${round}`];
        const siblings = Array.from({ length: 6 }, (_, i) => `sibling-${round}-${i}`);
        await granted(engine, parent, path);
        const asked = await acquireFilesAs(serverFor(round), { ownerId: child, parentId: parent }, path);
        expect(asked.kind).to.equal('granted');
        const giveUp = () =>
          round % 2 === 0
            ? serverFor(round + 1).files.endOwner(child, caller)
            : releaseFilesAs(serverFor(round + 1), child, 'FAILED', path);
        const [, ...outcomes] = await Promise.all([
          giveUp(),
          ...siblings.map((ownerId, i) => acquireFilesAs(serverFor(i), { ownerId, parentId: parent }, path)),
        ]);
        const winners = siblings.filter((_, i) => outcomes[i]?.kind === 'granted');
        expect(winners.length, `winners of round ${round}`).to.be.at.most(1);
        expect((await holdersOf(store.database))[path]).to.equal(winners[0] ?? parent);
        for (const outcome of outcomes) expect(['granted', 'contended']).to.include(outcome.kind);
        // The file returns once more, while its holders and the parent act at the same time.
        const [last] = winners;
        if (last === undefined) continue;
        await Promise.all([
          serverFor(round).files.endOwner(last, caller),
          beatOwner(serverFor(round + 1), parent),
          acquireFiles(serverFor(round + 2), parent, `other-${round}`),
        ]);
        expect((await holdersOf(store.database))[path]).to.equal(parent);
      }
      const doubly = await store.database.query(
        `select path, fence from (
          select path, fence, type, lag(type) over (partition by path order by event_id) as before
          from file_events where type in (0, 7, 8)
        ) told where type = 0 and before = 0`,
        [],
      );
      expect(doubly, 'grants that follow a grant').to.deep.equal([]);
    });

    it('frees a lent file when the sub-agent and its parent end at once (B5)', async function () {
      this.timeout(60_000);
      for (let round = 0; round < 15; round++) {
        const [parent, child, path] = [`z-parent-${round}`, `a-child-${round}`, `both-${round}`];
        await granted(engine, parent, path);
        await acquireFilesAs(engine, { ownerId: child, parentId: parent }, path);
        await Promise.all([
          serverFor(round).files.endOwner(child, caller),
          serverFor(round + 1).files.endOwner(parent, caller),
        ]);
        expect(await holdersOf(store.database)).to.deep.equal({});
      }
      await granted(engine, 'heir', ...Array.from({ length: 15 }, (_, i) => `both-${i}`));
    });

    it('applies an instruction once when it races the request of an ended owner (B2)', async function () {
      this.timeout(60_000);
      const outcomes = new Set<string>();
      for (let round = 0; round < 12; round++) {
        const [holder, waiter, path] = [`ih${round}`, `iw${round}`, `if${round}`];
        await granted(engine, holder, path);
        await contended(engine, waiter, path);
        for (let passed = 0; passed < 4; passed++) {
          await letFileTimePass(store.database, 46_000);
          await beatOwner(engine, holder);
        }
        const { contentionId } = await halted(engine, waiter, path);
        await engine.files.endOwner(waiter, caller);
        const instruct = () =>
          serverFor(round).files.instruct(contentionId, { instruction: 'FORCE_RELEASE' }, caller);
        const ask = () => acquireFiles(serverFor(round + 1), waiter, path);
        const [instructed, asked] = await Promise.all(
          round % 2 === 0 ? [instruct(), ask()] : [ask(), instruct()].toReversed(),
        );
        outcomes.add(`${(instructed as { kind: string }).kind}, ${(asked as { kind: string }).kind}`);
        // The instruction was stored and a later request applies it, or the revived owner has the file.
        await granted(engine, waiter, path);
        expect((await holdersOf(store.database))[path]).to.equal(waiter);
        const open = await store.database.query(
          'select from file_contentions where contention_id = $1 and closed_at is null',
          [contentionId],
        );
        expect(open).to.deep.equal([]);
        const taken = await store.database.query(
          'select from file_events where path = $1 and type = 8 and owner_id = $2',
          [path, holder],
        );
        expect(taken, 'it was taken from its holder once').to.have.length(1);
        expect(await beatOwner(engine, holder)).to.equal('extended');
      }
      for (const outcome of outcomes)
        expect(['kept, halted', 'kept, granted', 'granted, halted', 'granted, granted']).to.include(outcome);
    });

    it("grants one of a caller's concurrent retries and denies the others anew (B6)", async () => {
      for (let round = 0; round < 10; round++) {
        const [callerId, path] = [`caller-${round}`, `cf${round}`];
        await granted(engine, `ch${round}`, path);
        await acquireFilesAs(engine, { ownerId: `c0-${round}`, callerId }, path);
        await releaseFiles(engine, `ch${round}`, path);
        await letFileTimePass(store.database, 180_000);
        const outcomes = await Promise.all(
          [1, 2, 3].map((n) => acquireFilesAs(serverFor(n), { ownerId: `c${n}-${round}`, callerId }, path)),
        );
        expect(outcomes.map(({ kind: outcome }) => outcome).sort()).to.deep.equal([
          'contended',
          'contended',
          'granted',
        ]);
        const ids = outcomes.flatMap((outcome) =>
          outcome.kind === 'contended' ? [outcome.contention.contentionId] : [],
        );
        expect(new Set(ids).size, 'they wait as one caller').to.equal(1);
      }
    });

    if (kind.name !== 'postgresql') return;

    it("returns a dead sub-agent's file once while its parent's row is locked (B5)", async function () {
      this.timeout(60_000);
      for (let round = 0; round < 5; round++) {
        const [parent, child, path] = [`rp${round}`, `rc${round}`, `rf${round}`];
        await granted(engine, parent, path);
        await acquireFilesAs(engine, { ownerId: child, parentId: parent }, path);
        await letFileTimePass(store.database, 45_000);
        await beatOwner(engine, parent);
        await letFileTimePass(store.database, 20_000);
        const lock = 'select from file_owners where owner_id = $1 for update';
        const holder = await Holder.hold(store, lock, [parent]);
        try {
          const rounds = servers().map((server) => server.services.fileReaper.runOnce());
          await holder.untilWaiting(1);
          await holder.letGo();
          await Promise.all(rounds);
        } finally {
          await holder.close();
        }
        expect((await holdersOf(store.database))[path]).to.equal(parent);
        const returned = await store.database.query(
          "select from file_events where path = $1 and type = 0 and data ? 'returned_by'",
          [path],
        );
        expect(returned).to.have.length(1);
        await releaseFiles(engine, parent, path);
      }
    });

    it('delays only requests for a file whose row is locked', async () => {
      await granted(engine, 'before', 'locked');
      await releaseFiles(engine, 'before', 'locked');
      const lock = 'select from file_leases where file_id = $1 for update';
      const holder = await Holder.hold(store, lock, [fileIdOf(repository, 'locked')]);
      try {
        const waiting = acquireFiles(engine, 'patient', 'locked');
        const passing = Array.from({ length: 20 }, (_, i) => granted(engine, `quick-${i}`, `free-${i}`));
        await Promise.all(passing);
        await holder.untilWaiting(1);
        await granted(engine, 'quicker', 'free');
        await holder.letGo();
        expect((await waiting).kind).to.equal('granted');
      } finally {
        await holder.close();
      }
    });

    it('delays only the owner whose row is locked, in requests and heartbeats', async () => {
      for (const ownerId of ['stuck', 'free']) await granted(engine, ownerId, `of-${ownerId}`);
      const lock = 'select from file_owners where owner_id = $1 for update';
      const holder = await Holder.hold(store, lock, ['stuck']);
      try {
        const late = Promise.all([acquireFiles(engine, 'stuck', 'more'), beatOwner(engine, 'stuck')]);
        expect(await beatOwner(engine, 'free')).to.equal('extended');
        await granted(engine, 'free', 'another');
        const other = await contended(engine, 'third', 'of-stuck');
        expect(other.blockers[0]?.ownerId, 'a denial waits for nobody').to.equal('stuck');
        await holder.untilWaiting(2);
        await holder.letGo();
        const [outcome, verdict] = await late;
        expect(outcome.kind).to.equal('granted');
        expect(verdict).to.equal('extended');
      } finally {
        await holder.close();
      }
    });

    it('does not revive an owner that died while its heartbeat waited for the row lock', async () => {
      await granted(engine, 'dying', 'p');
      await letFileTimePass(store.database, 59_000);
      const lock = 'select from file_owners where owner_id = $1 for update';
      const holder = await Holder.hold(store, lock, ['dying']);
      try {
        const late = beatOwner(engine, 'dying');
        await holder.untilWaiting(1);
        await holder.query("update file_owners set expires_at = clock_timestamp() - interval '1 ms'");
        await holder.letGo();
        expect(await late).to.equal('owner_not_alive');
      } finally {
        await holder.close();
      }
    });
  });
});
