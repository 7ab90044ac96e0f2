/**
 * The guarantee: entities are read and written with MikroORM. `raw-statements.json` lists every place that
 * bypasses it, each with its reason, and the list may only shrink.
 *
 * Two checks find an unlisted statement: a search of the sources for everything that sends SQL, and a trace
 * of every statement that a server sends back to its place in the sources.
 */
import { readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { EntityManager } from '@mikro-orm/core';
import { SqlEntityManager } from '@mikro-orm/postgresql';
import { expect } from 'chai';
import { Transaction } from '../../src/store/connection/transaction.ts';
import { Database } from '../../src/store/database.ts';
import { onEveryEngine } from '../support/engines.ts';
import { engineOn } from '../support/jobs.ts';
import { ask, claim, get, jobsPath, post, submit } from '../support/jobs-api.ts';
import { countByName, findRawPlaces, rawPlacesIn, readRawStatementList } from '../support/raw-statements.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

const root = join(import.meta.dirname, '..', '..');
const howTo = 'use an entity, or give a reason in test/store/raw-statements.json';

describe('raw statements', () => {
  it('lists every raw statement with its reason (B4)', () => {
    const { reasons, statements } = readRawStatementList();
    const found = countByName(findRawPlaces());
    const added = Object.entries(found).filter(([name, count]) => count > (statements[name]?.count ?? 0));
    expect(added, `statements that are not listed: ${howTo}`).to.deep.equal([]);
    const gone = Object.entries(statements).filter(([name, { count }]) => count > (found[name] ?? 0));
    expect(gone, 'listed statements that are gone: take them out of the list').to.deep.equal([]);
    const used = new Set(Object.values(statements).map(({ reason }) => reason));
    expect([...used].sort()).to.deep.equal(Object.keys(reasons).sort());
    for (const reason of Object.values(reasons)) expect(reason.length).to.be.above(30);
  });

  it('recognizes raw statements in whatever way they are sent', () => {
    const ways = [
      'sql.query(text, [])',
      "database.query<{ n: number }>('select 1', [])",
      'em.execute(text, [1])',
      'em.execute<Row[]>(text)',
      'orm.em.getConnection()',
      'kysely.executeQuery(compiled)',
      'raw`select 1`.execute(kysely)',
      'new Client({ connectionString })',
      "const read = prepared('select 1')",
      "const read = preparedStatement([], 'select 1')",
      'const lock = onHeads([], (heads) => heads)',
      "connection.run('begin', [], undefined)",
    ];
    for (const way of ways) {
      const [place, ...more] = rawPlacesIn('a.ts', `export async function send() {\n  ${way};\n}\n`);
      expect(place, way).to.include({ name: 'a.ts#send', line: 2 });
      expect(more, way).to.deep.equal([]);
    }
    const method =
      'class A {\n  async #send(): Promise<void> {\n    await this.sql.query(text, []);\n  }\n}\n';
    expect(rawPlacesIn('a.ts', method).map(({ name }) => name)).to.deep.equal(['a.ts#A.#send']);
    for (const builder of ['qb.execute()', "qb.execute('get', { mapResults: false })", 'em.find(Job, {})'])
      expect(rawPlacesIn('a.ts', `const a = () => ${builder};`), builder).to.deep.equal([]);
  });
});

/** Replaces a method while the work runs. */
async function replaced<T>(
  on: object,
  name: string,
  made: (original: Method) => Method,
  work: () => Promise<T>,
) {
  const methods = on as Record<string, Method>;
  const original = methods[name] as Method;
  methods[name] = made(original);
  try {
    return await work();
  } finally {
    methods[name] = original;
  }
}

type Method = (this: unknown, ...given: unknown[]) => unknown;

/** The first frame of a stack outside the classes that pass statements on, as a place in the sources. */
function senderIn(stack: string): { file: string; line: number } | undefined {
  for (const frame of stack.split('\n').slice(1)) {
    const [, path, line] = /(?:file:\/\/)?(\/[^():]+|[A-Z]:[^():]+):(\d+):\d+\)?$/.exec(frame) ?? [];
    if (path === undefined) continue;
    const file = relative(root, path).split(sep).join('/');
    if (
      !file.startsWith('src/') ||
      /^src\/store\/(database|connection\/(?:transaction|statement))\.ts$/.test(file)
    )
      continue;
    return { file, line: Number(line) };
  }
  return undefined;
}

/** A call over Connect, with an empty message. */
async function rpc(server: TestServer, method: string): Promise<void> {
  const { status } = await fetch(`${server.http}/leasehold.v1.${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{}',
  });
  expect(status, method).to.equal(200);
}

/** Deletes old rows without waiting for the server's hourly pruner. */
async function prune(server: TestServer): Promise<void> {
  const engine = engineOn(server.database);
  await engine.services.pruner.runOnce();
  await engine.stop();
}

const setCapacity = (server: TestServer) =>
  ask(server, '/api/scheduler/stats/capacity', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ total: 100 }),
  });

/** Calls every client entry point that reads or writes rows, once. */
async function useEverything(server: TestServer): Promise<void> {
  const job = await submit(server, { stream: 's', max_attempts: 2, client_request_id: 'k' });
  await post(server, `${jobsPath}/submit`, { ...job, job_type: 't', cost_units: 1, client_request_id: 'k' });
  await submit(server, { addon_id: job.addon_id });
  const claimed = await claim(server, job.addon_id);
  await post(server, `${jobsPath}/${claimed.job_id}/cancel`, {});
  const granted = await post(server, '/api/system/scheduler/leases/request', { worker_id: 'w' });
  expect(granted.status).to.be.oneOf([200, 201, 404]);
  const taken = await post(server, '/internal/worker/claim', { worker_id: 'w', streams: ['s'] });
  expect(taken.body.claimed, taken.text).to.equal(true);
  const attempt = { job_id: taken.body.job_id, worker_id: 'w', lease_token: taken.body.lease_token };
  await post(server, '/internal/worker/heartbeat', { ...attempt, attempt_id: taken.body.attempt_id });
  const files = { owner_id: 'o', repository: 'r', paths: ['a'] };
  await post(server, '/api/files/acquire', files);
  await post(server, '/api/files/acquire', { ...files, owner_id: 'p' });
  for (const path of [
    jobsPath,
    `${jobsPath}?state=DONE&state=FAILED&created_after=2020-01-01T00:00:00Z`,
    `${jobsPath}/${job.job_id}`,
    `${jobsPath}/${job.job_id}/events`,
    `${jobsPath}/${job.job_id}/explain`,
    '/api/scheduler/stats/capacity',
    '/api/scheduler/stats/snapshot',
    '/api/files/leases',
    '/api/files/blockers',
  ]) {
    const { status, text } = await get(server, path);
    expect(status, `${path}: ${text}`).to.equal(200);
  }
  await rpc(server, 'LeasesService/ListLeases');
  await prune(server);
}

onEveryEngine((engine) => {
  describe('a server', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    it('sends no statement from an unlisted place (B4)', async () => {
      const senders = new Map<string, { file: string; line: number }>();
      const lost: string[] = [];
      const trace = (original: Method): Method =>
        function traced(this: unknown, ...given) {
          const { stackTraceLimit } = Error;
          Error.stackTraceLimit = 50;
          const stack = new Error().stack ?? '';
          Error.stackTraceLimit = stackTraceLimit;
          const sender = senderIn(stack);
          if (sender) senders.set(`${sender.file}:${sender.line}`, sender);
          else lost.push(stack);
          return original.apply(this, given);
        };
      await replaced(Database.prototype, 'query', trace, () =>
        replaced(Transaction.prototype, 'query', trace, () => useEverything(server)),
      );
      expect(senders.size).to.be.above(20);
      const places = new Set(findRawPlaces().map(({ file, line }) => `${file}:${line}`));
      expect([...senders.keys()].filter((sender) => !places.has(sender))).to.deep.equal([]);
      // Statements of the test itself come from no source, and there are none.
      expect(lost).to.deep.equal([]);
    });

    const uses: [string, 'find' | 'findOne' | 'nativeUpdate' | 'getKysely', () => Promise<unknown>][] = [
      ['a list of jobs', 'getKysely', () => get(server, jobsPath)],
      ['the capacity', 'findOne', () => get(server, '/api/scheduler/stats/capacity')],
      ['a change of the capacity', 'nativeUpdate', () => setCapacity(server)],
      ['the state of a deletion', 'find', () => prune(server)],
      ['a list of leases', 'getKysely', () => rpc(server, 'LeasesService/ListLeases')],
    ];
    for (const [what, method, use] of uses) {
      it(`answers with ${what} through ${method} of the entity manager (B4)`, async () => {
        let calls = 0;
        const count = (original: Method): Method =>
          function counted(this: unknown, ...given) {
            calls++;
            return original.apply(this, given);
          };
        const on = method === 'getKysely' ? SqlEntityManager.prototype : EntityManager.prototype;
        await replaced(on, method, count, use);
        expect(calls).to.be.above(0);
      });
    }
  });
});

describe('the dependencies', () => {
  it('includes kysely exactly while the sources use it (B4)', () => {
    const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    const isUsed = /from 'kysely'/.test(readFileSync(join(root, 'src/store/schema/tables.ts'), 'utf8'));
    expect('kysely' in dependencies).to.equal(isUsed);
  });
});
