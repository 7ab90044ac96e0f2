import { Code, ConnectError } from '@connectrpc/connect';
import { expect } from 'chai';
import {
  connectLeasehold,
  FileContentionState,
  FileInstruction,
  FileLeaseState,
  FileReleaseReason,
  type LeaseholdClient,
  type WatchFileLeasesResponse,
} from '../../../src/client/grpc-client.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { pass } from '../../support/files-api.ts';
import { HeartbeatClient, ownersFrame } from '../../support/heartbeat-streams.ts';
import { Holder } from '../../support/lease-helpers.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('FileLeasesService', () => {
    let server: TestServer;
    let files: LeaseholdClient['files'];
    before(async () => {
      server = await startTestServer(engine);
      files = connectLeasehold(server.grpc).files;
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    let names = 0;
    const newName = (what: string) => `${what}-${++names}`;
    const repository = 'r';
    const acquire = async (ownerId: string, ...paths: string[]) =>
      (await files.acquireFileLeases({ ownerId, repository, paths, owner: { agent: 'a', pid: 1 } })).outcome;

    /** The message of the error that a call fails with. */
    const failure = async (call: Promise<unknown>): Promise<ConnectError> =>
      ConnectError.from(
        await call.then(
          () => expect.fail('it came out well'),
          (error: unknown) => error,
        ),
      );

    it('grants, renews, denies, halts, instructs and releases over gRPC', async () => {
      const [holder, waiter, path] = [newName('o'), newName('o'), newName('p')];
      const granted = await acquire(holder, path);
      if (granted.case !== 'granted') return expect.fail(granted.case);
      const [lease] = granted.value.leases;
      expect(lease).to.include({ path, ownerId: holder, leaseState: FileLeaseState.HELD });
      expect(lease?.owner).to.include({ agent: 'a', pid: 1 });
      const denied = await acquire(waiter, path);
      if (denied.case !== 'contended') return expect.fail(denied.case);
      expect(denied.value.retryAfterMs).to.equal(180_000n);
      const { contentionId } = denied.value;
      const waiting = await files.listBlockers({ state: FileContentionState.CONTENDED, ownerId: waiter });
      expect(waiting.blockers[0]?.blocked.value?.contentionId).to.equal(contentionId);
      const early = files.instructBlocker({ contentionId, instruction: FileInstruction.RETRY });
      expect((await failure(early)).code).to.equal(Code.FailedPrecondition);
      await pass(server, 181_000, [holder, waiter]);
      const halted = await acquire(waiter, path);
      if (halted.case !== 'halted') return expect.fail(halted.case);
      expect(halted.value).to.include({ contentionId, retryS: 180, blockerChanged: false });
      const forced = await files.instructBlocker({
        contentionId,
        instruction: FileInstruction.FORCE_RELEASE,
      });
      expect(forced.outcome.case).to.equal('granted');
      const { lostFiles, drain } = await files.heartbeatOwner({ ownerId: holder });
      expect(drain).to.equal(false);
      expect(lostFiles[0]).to.include({ path, fence: lease?.fence });
      const { leases } = await files.listFileLeases({ ownerId: waiter });
      const fence = leases[0]?.fence ?? 0n;
      const { released } = await files.releaseFileLeases({
        ownerId: waiter,
        repository,
        fences: { [path]: fence },
        reason: FileReleaseReason.COMMITTED,
      });
      expect(released[0]?.leaseState).to.equal(FileLeaseState.RELEASED);
      const stopped = await files.stopOwner({ ownerId: waiter });
      expect(stopped.owner?.stoppedAt).not.to.equal(undefined);
      const active = await files.recordActivity({ ownerId: waiter });
      expect(active.owner?.stoppedAt).to.equal(undefined);
      const ended = await files.endOwner({ ownerId: waiter });
      expect(ended.owner?.endedAt).not.to.equal(undefined);
    });

    it('refuses with the documented errors', async () => {
      const path = newName('p');
      const wrong = await failure(files.acquireFileLeases({ ownerId: 'o', repository, paths: [path, '/x'] }));
      expect(wrong.code).to.equal(Code.InvalidArgument);
      expect(wrong.rawMessage).to.match(/^invalid_request: paths\[1\]/);
      const nobody = await failure(files.heartbeatOwner({ ownerId: newName('o') }));
      expect(nobody.code).to.equal(Code.NotFound);
      expect(nobody.rawMessage).to.match(/^owner_not_found/);
      const release = files.releaseFileLeases({ ownerId: 'o', repository });
      expect((await failure(release)).rawMessage).to.match(
        /^invalid_request: reason: must be one of FILE_RELEASE_REASON_COMMITTED, /,
      );
      const unclear = files.instructBlocker({ contentionId: 'x' });
      expect((await failure(unclear)).rawMessage).to.match(
        /^invalid_request: instruction: must be one of FILE_INSTRUCTION_RETRY, /,
      );
      const instruct = files.instructBlocker({ contentionId: 'x', instruction: 1 });
      expect((await failure(instruct)).rawMessage).to.match(/^contention_not_found/);
    });

    it('accepts owners on the heartbeat stream, each with its own verdict', async () => {
      const [alive, ended, stranger] = [newName('o'), newName('o'), newName('o')];
      await acquire(alive, newName('p'));
      await acquire(ended, newName('p'));
      await files.endOwner({ ownerId: ended });
      const client = new HeartbeatClient(server.grpc);
      try {
        const nobody = '00000000-0000-4000-8000-000000000000';
        client.call.write(ownersFrame([alive, ended, stranger, ' ', alive], [nobody]));
        await eventually('all are answered', async () => {
          const answered = client.frames.reduce((sum, { owners }) => sum + owners.length, 0);
          return answered === 5 && client.frames.some(({ verdicts }) => verdicts.length === 1)
            ? true
            : undefined;
        });
        const verdicts = client.frames.flatMap(({ owners }) => owners);
        const codes = verdicts.map(({ ownerId, outcome }) => [
          ownerId,
          outcome.case === 'lost' ? outcome.value.code : outcome.case,
        ]);
        expect(codes).to.have.deep.members([
          [alive, 'extended'],
          [alive, 'extended'],
          [ended, 'owner_not_alive'],
          [stranger, 'owner_not_found'],
          [' ', 'invalid_request'],
        ]);
      } finally {
        client.close();
      }
    });

    it('keeps an owner alive by the stream alone, and reports there what an operator took', async () => {
      const [holder, waiter, path] = [newName('o'), newName('o'), newName('p')];
      await acquire(holder, path);
      await acquire(waiter, path);
      const client = new HeartbeatClient(server.grpc);
      const said = () => client.frames.flatMap(({ owners }) => owners);
      const keep = async () => {
        const before = said().length;
        client.call.write(ownersFrame([holder, waiter]));
        await eventually('both are answered', async () => (said().length === before + 2 ? true : undefined));
      };
      try {
        for (let minute = 0; minute < 4; minute++) {
          await keep();
          await pass(server, 45_500, []);
        }
        const halted = await acquire(waiter, path);
        if (halted.case !== 'halted') return expect.fail(halted.case);
        const { contentionId } = halted.value;
        await files.instructBlocker({ contentionId, instruction: FileInstruction.FORCE_RELEASE });
        await keep();
        const verdict = said().findLast(({ ownerId }) => ownerId === holder)?.outcome;
        if (verdict?.case !== 'extended') return expect.fail(verdict?.case);
        expect(verdict.value.lostFiles.map((lost) => lost.path)).to.deep.equal([path]);
      } finally {
        client.close();
      }
    });

    describe('WatchFileLeases', () => {
      interface Watch {
        types: (path: string) => string[];
        messages: WatchFileLeasesResponse[];
        stop(): void;
      }

      /** Watches until it is stopped; resolves when the first message has named the start. */
      async function watch(request: object = {}, from = files): Promise<Watch> {
        const stopping = new AbortController();
        const messages: WatchFileLeasesResponse[] = [];
        const stream = from.watchFileLeases(request, { signal: stopping.signal });
        void (async () => {
          try {
            for await (const message of stream) messages.push(message);
          } catch {
            // The watch was stopped.
          }
        })();
        await eventually('the watch has begun', async () => messages[0]);
        const types = (path: string) =>
          messages
            .flatMap(({ events }) => events)
            .filter((event) => event.path === path)
            .map(({ type }) => type);
        return { types, messages, stop: () => stopping.abort() };
      }

      it('sends every event of a file, in order and once', async () => {
        const [holder, waiter, path] = [newName('o'), newName('o'), newName('p')];
        const all = await watch();
        const own = await watch({ ownerId: waiter });
        try {
          await acquire(holder, path);
          await acquire(waiter, path);
          await pass(server, 180_500, [holder, waiter]);
          await eventually('the retry is due', async () =>
            all.types(path).includes('FILE_RETRY_DUE') ? true : undefined,
          );
          const halted = await acquire(waiter, path);
          if (halted.case !== 'halted') return expect.fail(halted.case);
          const { contentionId } = halted.value;
          await files.instructBlocker({ contentionId, instruction: FileInstruction.FORCE_RELEASE });
          await pass(server, 61_000, []);
          await eventually('both have died', async () => (all.types(path).length === 8 ? true : undefined));
          expect(all.types(path)).to.have.members([
            'FILE_GRANTED',
            'FILE_CONTENDED',
            'FILE_RETRY_DUE',
            'FILE_HALTED',
            'FILE_INSTRUCTED',
            'FILE_RECLAIMED',
            'FILE_GRANTED',
            'FILE_RECLAIMED',
          ]);
          expect(all.types(path).slice(0, 4)).to.deep.equal([
            'FILE_GRANTED',
            'FILE_CONTENDED',
            'FILE_RETRY_DUE',
            'FILE_HALTED',
          ]);
          const ids = all.messages.flatMap(({ events }) => events.map(({ eventId }) => eventId));
          expect(new Set(ids).size).to.equal(ids.length);
          await eventually('the waiter was told of', async () =>
            own.types(path).filter((type) => type === 'FILE_RECLAIMED').length === 1 ? true : undefined,
          );
          expect(own.types(path).filter((type) => type === 'FILE_GRANTED')).to.have.length(1);
        } finally {
          all.stop();
          own.stop();
        }
      });

      it('continues after a cursor without a gap or a repetition', async () => {
        const owner = newName('o');
        const paths = Array.from({ length: 30 }, () => newName('p'));
        const first = await watch({ ownerId: owner });
        for (const path of paths.slice(0, 10)) await acquire(owner, path);
        await eventually('ten were told', async () => (seen(first) >= 10 ? true : undefined));
        first.stop();
        const afterCursor = first.messages.at(-1)?.cursor;
        await Promise.all(paths.slice(10).map((path) => acquire(owner, path)));
        const second = await watch({ ownerId: owner, afterCursor });
        await eventually('the rest was told', async () => (seen(second) >= 20 ? true : undefined));
        second.stop();
        const told = [...first.messages, ...second.messages].flatMap(({ events }) =>
          events.map(({ path }) => path),
        );
        expect(told).to.have.members(paths);
      });

      const seen = ({ messages }: Watch): number =>
        messages.reduce((sum, { events }) => sum + events.length, 0);

      it('refuses a malformed cursor', async () => {
        const stream = files.watchFileLeases({ afterCursor: 'yesterday' });
        const call = (async () => {
          for await (const message of stream) return message;
        })();
        expect((await failure(call)).rawMessage).to.match(/^invalid_request: after_cursor/);
      });

      if (engine.name !== 'postgresql') return;
      it('misses no event of a transaction that began before others and committed after them', async () => {
        const [owner, path] = [newName('o'), newName('p')];
        const watching = await watch({});
        const slow = await Holder.hold(
          server.store,
          `insert into file_events (txid, at, type, owner_id, repository, path, actor)
          values (pg_current_xact_id()::text::bigint, now(), 0, $1, $2, $3, 'slow')`,
          [owner, repository, path],
        );
        try {
          await acquire(owner, `${path}-later`);
          await slow.letGo();
          await eventually('both are told', async () =>
            watching.types(path).length === 1 && watching.types(`${path}-later`).length === 1
              ? true
              : undefined,
          );
        } finally {
          await slow.close();
          watching.stop();
        }
      });

      it('sends events of other servers promptly', async () => {
        await using other = await startTestServer(engine, { shared: server.store });
        const path = newName('p');
        const watching = await watch({}, connectLeasehold(other.grpc).files);
        try {
          // Once the other server knows the listener, it notifies at once; before that it polls every two
          // seconds.
          for (let round = 0; round < 5; round++) await acquire(newName('o'), `${path}-${round}`);
          await eventually('the other server has told', async () =>
            watching.types(`${path}-4`).length === 1 ? true : undefined,
          );
        } finally {
          watching.stop();
        }
      });
    });
  });
});
