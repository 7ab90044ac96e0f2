/** Which privileged acts and which refused calls the audit has, with which principal, by every way in. */
import { expect } from 'chai';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import { onEveryEngine } from '../support/engines.ts';
import { haltedPath } from '../support/files-api.ts';
import { type Body, get, jobsPath, submit } from '../support/jobs-api.ts';
import { createKey, type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { capacityOf, capacityPath, setCapacity } from '../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';
import { Collector } from '../support/trace-collector.ts';
import { claimedFrom, enqueue, fail, newStream } from '../support/worker-api.ts';

const json = { 'content-type': 'application/json' };

onEveryEngine((engine) => {
  describe('the audit of a server with keys', () => {
    let server: KeyedServer;
    let operator: TestKey;
    let submitter: TestKey;
    before(async () => {
      server = await startKeyedServer(engine);
      operator = await createKey(server.database, { name: 'op', roles: ['operator'] });
      submitter = await createKey(server.database, { name: 'shop', roles: ['submitter'] });
      await eventually('the server knows the keys', async () =>
        (await as(submitter, 'GET', '/api/access/whoami')).status === 200 ? true : undefined,
      );
    });
    after(() => server.stop());

    async function as(key: TestKey, method: string, path: string, body?: object, headers = {}) {
      const response = await fetch(`${server.http}${path}`, {
        method,
        headers: { ...key.headers, ...headers, ...(body ? json : {}) },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      const text = await response.text();
      return { status: response.status, body: JSON.parse(text) as Body };
    }

    const events = async (query: string): Promise<Body[]> => {
      const { status, body } = await as(server.admin, 'GET', `/api/access/audit?${query}`);
      expect(status, JSON.stringify(body)).to.equal(200);
      return body.events;
    };
    /** The events of an action, once there are as many. */
    const eventsOf = (action: string, count: number): Promise<Body[]> =>
      eventually(`${count} events of ${action}`, async () => {
        const found = await events(`action=${action}`);
        return found.length >= count ? found : undefined;
      });

    const submitted = async (): Promise<string> => {
      const job = { addon_id: 'a', job_type: 't', cost_units: 1 };
      return (await as(submitter, 'POST', `${jobsPath}/submit`, job)).body.job.job_id;
    };

    it('records changes of the capacity, with the claimed name beside the principal', async () => {
      const command = { total: 40, requested_by: 'the boss', reason: 'x total=1' };
      expect((await as(operator, 'PUT', capacityPath, command)).status).to.equal(200);
      expect((await as(operator, 'PUT', capacityPath, command)).status).to.equal(200);
      const client = connectLeasehold(server.grpc, { apiKey: operator.text });
      await client.stats.setCapacity({ busyRating: 2 });
      client.close();
      const [second, first, ...more] = await eventsOf('capacity.set', 2);
      expect(more, 'a change that changes nothing').to.deep.equal([]);
      expect(first).to.deep.include({
        principal: { kind: 'key', id: operator.keyId, name: 'op' },
        requested_by: 'the boss',
        peer: '127.0.0.1',
        method: 'PUT /api/scheduler/stats/capacity',
        target: 'capacity',
        outcome: 'done',
        detail: 'total=100->40 busy_rating=0->0 reason="x total=1"',
        left_out: 0,
      });
      expect(second).to.include({ requested_by: null, method: 'leasehold.v1.StatsService/SetCapacity' });
    });

    it('records retries and cancellations by operators, and none of a submitter', async () => {
      const [first, second, third] = [await submitted(), await submitted(), await submitted()];
      const cancel = (key: TestKey, jobId: string, body = {}) =>
        as(key, 'POST', `${jobsPath}/${jobId}/cancel`, body);
      expect((await cancel(submitter, first)).status).to.equal(200);
      for (let time = 0; time < 2; time++)
        expect((await cancel(operator, second, { requested_by: 'ann' })).status).to.equal(200);
      expect((await cancel(server.admin, third, { reason: 'stuck' })).status).to.equal(200);
      const canceled = await eventsOf('jobs.cancel', 2);
      expect(canceled.map(({ target }) => target)).to.deep.equal([third, second]);
      expect(canceled[1]).to.include({ requested_by: 'ann', detail: null });
      expect(canceled[0]).to.include({ requested_by: null, detail: 'reason=stuck' });
      const retry = await as(operator, 'POST', `${jobsPath}/${first}/retry`, { requested_by: 'bob' });
      expect(retry.status, JSON.stringify(retry.body)).to.equal(200);
      const [retried] = await eventsOf('jobs.retry', 1);
      expect(retried).to.include({ target: first, requested_by: 'bob', outcome: 'done' });
      expect(retried?.principal).to.include({ name: 'op' });
      const eventOf = async (jobId: string, type: string): Promise<Body> => {
        const { body } = await as(operator, 'GET', `${jobsPath}/${jobId}/events`);
        return body.events.find((event: Body) => event.type === type);
      };
      const { data } = await eventOf(second, 'JOB_CANCELED');
      expect(data).to.include({ by: 'ann', principal: operator.keyId });
      const { data: again } = await eventOf(first, 'JOB_RETRIED');
      expect(again).to.include({ by: 'bob', principal: operator.keyId });
    });

    it('lists the audit only for administrators that reach everything', async () => {
      const part = await createKey(server.database, {
        name: 'part',
        roles: ['admin'],
        scopes: { addon_ids: ['shop'] },
      });
      const { status } = await eventually('the key counts', async () => {
        const answer = await as(part, 'GET', '/api/access/audit');
        return answer.status === 401 ? undefined : answer;
      });
      expect(status).to.equal(403);
      expect((await as(operator, 'GET', '/api/access/audit')).status).to.equal(403);
    });

    it('refuses a filter that is no time and no outcome, and continues pages', async () => {
      for (const query of ['since=soon', 'until=soon', 'outcome=maybe', 'cursor=x'])
        expect((await as(server.admin, 'GET', `/api/access/audit?${query}`)).status, query).to.equal(400);
      const all = await events('limit=200&outcome=done');
      const paged: Body[] = [];
      let cursor = '';
      do {
        const { body } = await as(
          server.admin,
          'GET',
          `/api/access/audit?outcome=done&limit=2&cursor=${cursor}`,
        );
        paged.push(...body.events);
        cursor = body.next_cursor ?? '';
      } while (cursor !== '');
      expect(paged).to.deep.equal(all);
    });
  });

  describe('the audit of a server without authentication', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const events = async (query = ''): Promise<Body[]> =>
      (await get(server, `/api/access/audit${query}`)).body.events;

    it('records instructions, retries of dead letters and the capacity, and no cancellation', async () => {
      const { report } = await haltedPath(server);
      const order = { instruction: 'FORCE_RELEASE', requested_by: 'ops', reason: 'it hangs' };
      const path = `/api/files/blockers/${report.contention_id}/instruct`;
      const instruct = () =>
        fetch(`${server.http}${path}`, { method: 'POST', headers: json, body: JSON.stringify(order) });
      expect((await instruct()).status).to.equal(200);
      expect((await instruct()).status, 'a decided contention').to.equal(409);
      await setCapacity(server, { total: 70 });
      const stream = newStream();
      await enqueue(server, stream);
      const dead = await claimedFrom(server, [stream]);
      await fail(server, dead, { error: { code: 'E', message: 'm', retryable: false } });
      const retry = (body: object) =>
        fetch(`${server.http}${jobsPath}/retry`, {
          method: 'POST',
          headers: json,
          body: JSON.stringify(body),
        });
      expect((await retry({ stream, requested_by: 'ann' })).status).to.equal(200);
      expect((await retry({ stream })).status, 'none is left').to.equal(200);
      const { job_id } = await submit(server, {});
      await fetch(`${server.http}${jobsPath}/${job_id}/cancel`, {
        method: 'POST',
        headers: json,
        body: '{}',
      });
      const [retried, capacity, instructed, ...more] = await events();
      expect(more).to.deep.equal([]);
      expect(instructed).to.deep.include({
        action: 'files.instruct',
        principal: { kind: 'local', id: 'local', name: 'local' },
        requested_by: 'ops',
        target: report.contention_id,
        method: 'POST /api/files/blockers/{contention_id}/instruct',
        detail: 'instruction=FORCE_RELEASE outcome=granted reason="it hangs"',
      });
      expect(capacity).to.include({ action: 'capacity.set' });
      expect(retried).to.include({
        action: 'jobs.retry_dead_letters',
        target: stream,
        requested_by: 'ann',
        detail: 'jobs=1',
      });
    });

    it('records nothing of a change that is rolled back', async () => {
      const before = await events();
      await server.database.query('alter table capacity_changes rename to lost', []);
      try {
        const answer = await fetch(`${server.http}${capacityPath}`, {
          method: 'PUT',
          headers: json,
          body: '{"total":5}',
        });
        expect(answer.status).to.be.at.least(500);
      } finally {
        await server.database.query('alter table lost rename to capacity_changes', []);
      }
      expect(await events()).to.deep.equal(before);
      server.complaints.splice(0);
    });

    it('rolls back a change that cannot be recorded', async () => {
      const total = async () => (await capacityOf(server)).total;
      const before = await total();
      await server.database.query('alter table audit_events rename to lost', []);
      try {
        const answer = await fetch(`${server.http}${capacityPath}`, {
          method: 'PUT',
          headers: json,
          body: '{"total":6}',
        });
        expect(answer.status).to.be.at.least(500);
        expect(await total())
          .to.equal(before)
          .and.not.equal(6);
      } finally {
        await server.database.query('alter table lost rename to audit_events', []);
      }
      server.complaints.splice(0);
    });
  });

  describe('the audit of a traced server', () => {
    it('names the trace of a call', async () => {
      await using collector = await Collector.start();
      await using server = await startTestServer(engine, { settings: { otlpEndpoint: collector.url } });
      const traceId = '0af7651916cd43dd8448eb211c80319c';
      await fetch(`${server.http}${capacityPath}`, {
        method: 'PUT',
        headers: { ...json, traceparent: `00-${traceId}-b7ad6b7169203331-01` },
        body: '{"total":12}',
      });
      const [event] = (await get(server, '/api/access/audit')).body.events;
      expect(event).to.include({ action: 'capacity.set', trace_id: traceId });
    });
  });
});
