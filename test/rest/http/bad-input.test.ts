import { expect } from 'chai';
import {
  expectRefusal,
  expectUnharmed,
  postAs,
  routesWithBody,
  sendRaw,
} from '../../support/bad-requests.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { jobsPath, post, read } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const mebibyte = 1024 * 1024;

onEveryEngine((engine) => {
  describe('request bodies over REST', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    const submitPath = `${jobsPath}/submit`;
    const least = '"addon_id":"a","job_type":"t","cost_units":1';

    const malformed: Record<string, string> = {
      'is cut off': '{"addon_id":"a"',
      'has a comma too many': `{${least},}`,
      'has single quotes': "{'addon_id':'a'}",
      'has a comment': `{${least} /* no */}`,
      'is a word': 'undefined',
      'is NaN in a field': `{${least},"max_attempts":NaN}`,
      'is Infinity in a field': `{${least},"max_attempts":Infinity}`,
      'has something after it': `{${least}}{}`,
      'is a blank': ' ',
      'is a NUL': '\0',
      'has a raw line break in a text': `{${least},"stream":"a\nb"}`,
    };
    for (const [how, body] of Object.entries(malformed)) {
      it(`refuses a body with 400 if it ${how}`, async () => {
        for (const { path } of await routesWithBody(server)) {
          expectRefusal(await postAs(server, path, body), 400, 'invalid_request', 'body');
        }
      });
    }

    for (const body of ['[]', '[{}]', '"text"', '1', 'true', 'null']) {
      it(`refuses the body ${body} with 400, because it is no object`, async () => {
        for (const { path } of await routesWithBody(server)) {
          expectRefusal(await postAs(server, path, body), 400, 'invalid_request', 'body');
        }
      });
    }

    it('refuses a missing body with 400 if a field is required', async () => {
      for (const path of [submitPath, `${jobsPath}/claim`]) {
        expectRefusal(await postAs(server, path, ''), 400, 'invalid_request');
      }
    });

    const wrongTypes = [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/xml',
      'application/jsonx',
      'application/json; charset=utf-16',
      'nonsense',
    ];
    for (const type of wrongTypes) {
      it(`refuses a body of type ${type} with 415`, async () => {
        for (const { path, body } of await routesWithBody(server)) {
          const text = JSON.stringify({ ...body, unknown: 1 });
          const answer = await postAs(server, path, text, { 'content-type': type });
          expectRefusal(answer, 415, 'unsupported_media_type');
        }
      });
    }

    it('refuses a body compressed in another way than gzip with 415', async () => {
      const headers = { 'content-type': 'application/json', 'content-encoding': 'br' };
      expectRefusal(await postAs(server, submitPath, `{${least}}`, headers), 415, 'unsupported_media_type');
    });

    for (const type of [
      'application/json;charset=UTF-8',
      'Application/JSON',
      'application/json; charset="utf-8"',
    ]) {
      it(`accepts a body of type ${type}`, async () => {
        expect((await postAs(server, submitPath, `{${least}}`, { 'content-type': type })).status).to.equal(
          201,
        );
      });
    }

    const notUtf8: Record<string, number[]> = {
      'a stray byte': [0xff],
      'a cut-off character': [0xe2, 0x98],
      'an overlong character': [0xc0, 0xaf],
      'half of a surrogate pair': [0xed, 0xa0, 0x80],
    };
    for (const [what, bytes] of Object.entries(notUtf8)) {
      it(`refuses a body with 400 if it has ${what} and is not UTF-8`, async () => {
        const [before = '', after = ''] = `{${least},"payload":{"text":"#"}}`.split('#');
        const body = Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(after)]);
        expectRefusal(await postAs(server, submitPath, body), 400, 'invalid_request', 'body');
      });
    }

    it('accepts a body of 1 MiB, and not a byte more', async () => {
      const [before = '', after = ''] = `{${least},"payload":{"text":"#"}}`.split('#');
      const bodyOf = (bytes: number) =>
        `${before}${'x'.repeat(bytes - before.length - after.length)}${after}`;
      const answer = await postAs(server, submitPath, bodyOf(mebibyte));
      expect(answer.status).to.equal(201);
      const { job } = await read(server, answer.body.job.job_id);
      expect(job.payload.text).to.have.length(mebibyte - before.length - after.length);
      expectRefusal(await postAs(server, submitPath, bodyOf(mebibyte + 1)), 413, 'payload_too_large');
    });

    it('refuses a body of many MiB with 413, and not with a broken connection', async () => {
      const text = `{${least},"payload":{"text":"${'x'.repeat(20 * mebibyte)}"}}`;
      for (const { path } of await routesWithBody(server)) {
        expectRefusal(await postAs(server, path, text), 413, 'payload_too_large');
      }
    });

    it('refuses a body with a large Content-Length with 413 before the client sends it', async () => {
      const head = `POST ${submitPath} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n`;
      const answer = await sendRaw(server, `${head}content-length: 9999999999\r\n\r\n{`);
      expectRefusal(answer, 413, 'payload_too_large');
    });

    it('refuses a body that grows in chunks beyond 1 MiB with 413', async () => {
      const head = `POST ${submitPath} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n`;
      const chunk = `10000\r\n${' '.repeat(0x10000)}\r\n`;
      const answer = await sendRaw(server, `${head}transfer-encoding: chunked\r\n\r\n`, chunk.repeat(17));
      expectRefusal(answer, 413, 'payload_too_large');
    });

    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ] as const) {
      it(`refuses a body nested 10,000 levels deep in ${open} with 400`, async () => {
        const deep = `${open.repeat(10_000)}1${close.repeat(10_000)}`;
        const payload = await postAs(server, submitPath, `{${least},"payload":{"p":${deep}}}`);
        expectRefusal(payload, 400, 'invalid_request', 'payload');
        const constraints = await postAs(server, submitPath, `{${least},"constraints":{"p":${deep}}}`);
        expectRefusal(constraints, 400, 'invalid_request', 'constraints');
        for (const { path, body } of await routesWithBody(server)) {
          const text = `${JSON.stringify({ ...body, dummy: 0 }).slice(0, -1)},"unknown":${deep}}`;
          expect((await postAs(server, path, text)).status).to.be.below(500);
        }
        const whole = await postAs(server, submitPath, deep);
        expectRefusal(whole, 400, 'invalid_request');
      });
    }

    it('accepts a body nested 32 levels deep', async () => {
      let payload: object = {};
      for (let depth = 1; depth < 31; depth++) payload = { deeper: payload };
      const { status, body } = await post(server, submitPath, { ...JSON.parse(`{${least}}`), payload });
      expect(status).to.equal(201);
      expect((await read(server, body.job.job_id)).job.payload).to.deep.equal(payload);
    });

    it('stays healthy when bodies never end', async () => {
      const head = `POST ${submitPath} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n`;
      const { hostname, port } = new URL(server.http);
      const { connect } = await import('node:net');
      const socket = connect(Number(port), hostname);
      await new Promise<void>((resolve) => {
        socket.write(`${head}content-length: 100\r\n\r\n{"addon`, () => resolve());
      });
      socket.resetAndDestroy();
    });
  });
});
