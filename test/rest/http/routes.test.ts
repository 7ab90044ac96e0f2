import { expect } from 'chai';
import { expectRefusal, expectUnharmed, sendRaw } from '../../support/bad-requests.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { ask, get, jobsPath, read, submit } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('routing over REST', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    const unknown = [
      '/',
      '/api',
      '/api/scheduler',
      '/api/scheduler/job',
      '/API/scheduler/jobs',
      `${jobsPath}/`,
      `${jobsPath}//events`,
      `${jobsPath}/a/b/c`,
      `${jobsPath}/a/nothing`,
      `${jobsPath}/submit/events`,
      `${jobsPath}%2Fsubmit`,
      '/nowhere?with=query',
      '/leasehold.v1.JobsService',
      '/leasehold.v1.JobsService/Nothing',
      '/constructor',
      '/__proto__/toString',
    ];
    for (const path of unknown) {
      it(`answers an unknown path with 404: ${path}`, async () => {
        for (const method of ['GET', 'POST', 'DELETE']) {
          expectRefusal(await ask(server, path, { method }), 404, 'not_found');
        }
      });
    }

    const wrongMethods: [string, string, string[]][] = [
      [`${jobsPath}/submit`, 'POST', ['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']],
      [`${jobsPath}/claim`, 'POST', ['GET', 'PUT']],
      [jobsPath, 'GET', ['POST', 'PUT', 'DELETE']],
      [`${jobsPath}/{id}`, 'GET', ['POST', 'PUT', 'DELETE', 'PATCH']],
      [`${jobsPath}/{id}/status`, 'POST', ['GET', 'PUT']],
      [`${jobsPath}/{id}/cancel`, 'POST', ['GET', 'DELETE']],
      [`${jobsPath}/{id}/events`, 'GET', ['POST', 'DELETE']],
      ['/api/scheduler/lease/request', 'POST', ['GET', 'PUT']],
      ['/api/scheduler/lease/{id}', 'GET', ['POST', 'DELETE']],
      ['/api/scheduler/lease/{id}/heartbeat', 'POST', ['GET']],
      ['/api/scheduler/lease/{id}/release', 'POST', ['GET', 'DELETE']],
      ['/api/system/scheduler/jobs', 'POST', ['GET', 'PUT']],
      ['/api/system/scheduler/jobs/{id}', 'GET', ['POST', 'DELETE']],
      ['/api/system/scheduler/leases/request', 'POST', ['GET']],
      ['/api/system/scheduler/leases/{id}/complete', 'POST', ['GET', 'PUT']],
      ['/api/system/scheduler/leases/{id}/fail', 'POST', ['GET', 'PUT']],
      ['/api/files/acquire', 'POST', ['GET', 'PUT']],
      ['/api/files/heartbeat', 'POST', ['GET']],
      ['/api/files/release', 'POST', ['GET', 'DELETE']],
      ['/api/files/owners/{id}/stop', 'POST', ['GET']],
      ['/api/files/owners/{id}/activity', 'POST', ['GET']],
      ['/api/files/owners/{id}/end', 'POST', ['GET', 'DELETE']],
      ['/api/files/leases', 'GET', ['POST', 'DELETE']],
      ['/api/files/blockers', 'GET', ['POST']],
      ['/api/files/blockers/{id}/instruct', 'POST', ['GET', 'PUT']],
      ['/healthz', 'GET', ['POST', 'DELETE']],
    ];
    for (const [path, allowed, methods] of wrongMethods) {
      it(`answers 405 with the allowed methods: ${methods.join(', ')} of ${path}`, async () => {
        const { job_id } = await submit(server, {});
        for (const method of methods) {
          const answer = await ask(server, path.replace('{id}', job_id), { method });
          expectRefusal(answer, 405, 'method_not_allowed');
          expect(answer.body.detail).to.include(allowed);
          const allow = (answer.headers.get('allow') ?? '').split(/, */);
          expect(allow, `the header Allow, for ${method}`).to.include(allowed);
        }
        expect((await read(server, job_id)).job.state).to.equal('QUEUED');
      });
    }

    it('answers HEAD on a route with GET', async () => {
      const answer = await ask(server, jobsPath, { method: 'HEAD' });
      expect(answer.status).to.equal(200);
      expect(answer.text).to.equal('');
    });

    for (const id of ['%', '%zz', '%E0%A4%A', '%c0%af', 'a%']) {
      it(`answers a badly percent-encoded job id with 400: ${id}`, async () => {
        for (const [method, rest] of [
          ['GET', ''],
          ['GET', '/events'],
          ['POST', '/cancel'],
        ] as const) {
          const answer = await ask(server, `${jobsPath}/${id}${rest}`, { method });
          expectRefusal(answer, 400, 'invalid_request', 'job_id');
        }
      });
    }

    for (const id of ['%00', '%0d%0a', '..%2f..%2fetc', '%F0%9F%92%A9', 'x'.repeat(8_000)]) {
      it(`answers a path that names no job with 404: ${id.slice(0, 20)}`, async () => {
        expectRefusal(await get(server, `${jobsPath}/${id}`), 404, 'job_not_found');
      });
    }

    for (const query of [
      '%',
      '%zz=%',
      '=',
      '&&&',
      '?',
      'a[]=1',
      '__proto__=1&constructor=2',
      'limit=5&limit=6',
      '#',
    ]) {
      it(`ignores an odd query: ?${query}`, async () => {
        expect((await get(server, `${jobsPath}?${query}`)).status).to.equal(200);
      });
    }

    for (const [path, name] of [
      [jobsPath, 'addon_id'],
      ['/api/files/leases', 'owner_id'],
      ['/api/scheduler/stats/snapshot', 'addon_id'],
    ]) {
      it(`answers a badly percent-encoded ${name} of ${path} with 400 (S6)`, async () => {
        for (const value of ['%ff', '%', 'a%E0%A4%A'])
          expectRefusal(await get(server, `${path}?${name}=${value}`), 400, 'invalid_request', name);
      });
    }

    it('ignores a long query with many unknown parameters', async () => {
      const query = Array.from({ length: 1_000 }, (_, i) => `unknown${i}=1`).join('&');
      expect((await get(server, `${jobsPath}?${query}`)).status).to.equal(200);
    });

    const wire: Record<string, { request: string; statuses: number[] }> = {
      'a query of 100 kB': {
        request: `GET ${jobsPath}?addon_id=${'x'.repeat(100_000)} HTTP/1.1\r\nhost: localhost\r\n\r\n`,
        statuses: [400, 413, 414, 431],
      },
      'a header of 100 kB': {
        request: `GET ${jobsPath} HTTP/1.1\r\nhost: localhost\r\nx-long: ${'x'.repeat(100_000)}\r\n\r\n`,
        statuses: [400, 413, 431],
      },
      'what is no HTTP': { request: 'HELLO\r\n\r\n', statuses: [400] },
      'a length that is no number': {
        request: `POST ${jobsPath}/submit HTTP/1.1\r\nhost: localhost\r\ncontent-length: ten\r\n\r\n`,
        statuses: [400],
      },
      'two lengths': {
        request: `POST ${jobsPath}/submit HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}`,
        statuses: [400],
      },
      'a chunk that is none': {
        request: `POST ${jobsPath}/submit HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n`,
        statuses: [400],
      },
    };
    for (const [what, { request, statuses }] of Object.entries(wire)) {
      it(`answers ${statuses.join(' or ')} in JSON for ${what}`, async () => {
        const answer = await sendRaw(server, request);
        expect(answer.status, answer.text).to.be.oneOf(statuses);
        expect(answer.body, 'a body in the shape of every error').to.be.an('object');
        expect(answer.body.detail).to.be.a('string').and.not.to.equal('');
        expect(answer.body.code).to.be.a('string').and.not.to.equal('');
      });
    }

    it('accepts a path with the address of the server, as sent to a proxy', async () => {
      const head = `host: localhost\r\nconnection: close\r\n\r\n`;
      const answer = await sendRaw(server, `GET ${server.http}${jobsPath} HTTP/1.1\r\n${head}`);
      expect(answer.status).to.equal(200);
    });

    it('ignores the body of a GET', async () => {
      const head = `host: localhost\r\nconnection: close\r\ncontent-length: 3\r\n\r\n`;
      expect((await sendRaw(server, `GET ${jobsPath} HTTP/1.1\r\n${head}{{{`)).status).to.equal(200);
    });
  });
});
