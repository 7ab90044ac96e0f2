import { expect } from 'chai';
import { expectRefusal, expectUnharmed, postAs } from '../../support/bad-requests.ts';
import { onEveryEngine } from '../../support/engines.ts';
import {
  type Body,
  claim,
  claimedJob,
  eventsOf,
  get,
  jobsPath,
  newAddon,
  post,
  read,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

/** Text that has a meaning for some component on the way, and must have none here. */
const loaded = [
  `'; drop table jobs; --`,
  `"; drop table live_jobs cascade; --`,
  `') or ('1' = '1`,
  `\\'; select pg_sleep(30); --`,
  '$$; truncate job_events; $$',
  '$1 $2 :name ? ?? %s %I',
  'NULL',
  '{NULL,"a",b}',
  '\\N',
  '\\"\\\\{}',
  `{"json":"in text"}`,
  'constructor',
  '<script>alert(1)</script>',
  '../../etc/passwd',
  'line\r\nbreaks\tand\u2028others\u0001\u001f\u007f',
  'ünïcödé ☃ 𝒳 👩‍👩‍👧‍👦 \ufeff\u202e\uffff',
];

onEveryEngine((engine) => {
  describe('text that the database cannot store', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    const job = (fields: object) => ({ addon_id: newAddon(), job_type: 't', cost_units: 1, ...fields });
    const places: Record<string, (text: string) => [string, object]> = {
      addon_id: (text) => ['submit', job({ addon_id: text })],
      job_type: (text) => ['submit', job({ job_type: text })],
      client_request_id: (text) => ['submit', job({ client_request_id: text })],
      stream: (text) => ['submit', job({ stream: text })],
      tags: (text) => ['submit', job({ tags: ['fine', text] })],
      payload: (text) => ['submit', job({ payload: { a: [{ b: text }] } })],
      'payload, as a key': (text) => ['submit', job({ payload: { a: [{ [text]: 1 }] } })],
      constraints: (text) => ['submit', job({ constraints: { label_required: text } })],
      'constraints, as a key': (text) => ['submit', job({ constraints: { [`${text}_heavy`]: true } })],
      worker_id: (text) => ['claim', { worker_id: text }],
      'addon_id of a claim': (text) => ['claim', { worker_id: 'w', addon_id: text }],
      accept_job_types: (text) => ['claim', { worker_id: 'w', accept_job_types: [text] }],
      request_id: (text) => ['claim', { worker_id: 'w', request_id: text }],
      'constraints_capabilities, as a key': (text) => [
        'claim',
        { worker_id: 'w', constraints_capabilities: { [`${text}_available`]: true } },
      ],
      note: (text) => ['{id}/status', { state: 'CLAIMED', note: text }],
      'worker_id of a status': (text) => ['{id}/status', { state: 'CLAIMED', worker_id: text }],
      reason: (text) => ['{id}/cancel', { reason: text }],
      requested_by: (text) => ['{id}/retry', { requested_by: text }],
    };
    const unkeepable = { NUL: 'a\0b', 'a high surrogate': 'a\ud800b', 'a low surrogate': '\udfff' };
    for (const [place, request] of Object.entries(places)) {
      for (const [what, text] of Object.entries(unkeepable)) {
        it(`refuses text by the name of its field: ${what} in ${place}`, async () => {
          const { job_id } = await claimedJob(server);
          const [path, body] = request(text);
          const answer = await post(server, `${jobsPath}/${path.replace('{id}', job_id)}`, body);
          expectRefusal(answer, 400, 'invalid_request', place.split(/[ ,]/)[0]);
        });
      }
    }

    it('refuses a member called __proto__ at any place, by its name', async () => {
      const least = JSON.stringify(job({})).slice(0, -1);
      for (const field of ['payload', 'constraints']) {
        const text = `${least},"${field}":{"a":{"__proto__":{"polluted":1}}}}`;
        expectRefusal(await postAs(server, `${jobsPath}/submit`, text), 400, 'invalid_request', field);
      }
      const top = await postAs(server, `${jobsPath}/submit`, `${least},"__proto__":{"polluted":1}}`);
      if (top.status !== 201) expectRefusal(top, 400, 'invalid_request', '__proto__');
    });
  });

  describe('text with a meaning for a component on the way', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    for (const text of loaded) {
      it(`returns text verbatim from every field: ${JSON.stringify(text)}`, async () => {
        const fields = {
          addon_id: text,
          job_type: text,
          client_request_id: text,
          tags: [text, text],
          constraints: { [`${text}_required`]: true, [`${text}_heavy`]: true },
          payload: { [text]: text, list: [text, { [text]: [text] }] },
        };
        const job = await submit(server, fields);
        for (const [field, value] of Object.entries(fields)) expect(job[field]).to.deep.equal(value);
        const streamed = await submit(server, { ...fields, client_request_id: null, stream: text });
        expect((await read(server, streamed.job_id)).job).to.deep.equal(streamed);
        expect(streamed.stream).to.equal(text);

        const query = new URLSearchParams({ addon_id: text, job_type: text });
        const { body } = await get(server, `${jobsPath}?${query}`);
        expect(body.jobs).to.deep.equal([streamed, job]);

        const claimed = await claim(server, text, {
          worker_id: text,
          request_id: text,
          accept_job_types: [text],
          constraints_capabilities: { [`${text}_available`]: true },
        });
        expect(claimed).to.include({ job_id: job.job_id, claimed_by: text });
        const noted = await status(server, job.job_id, { state: 'PREPARING', note: text, worker_id: text });
        expect(noted.body.job.note).to.equal(text);
        await post(server, `${jobsPath}/${job.job_id}/cancel`, { reason: text, requested_by: text });
        const told = (await eventsOf(server, job.job_id)).map(({ data }: Body) => data);
        expect(told[0].by).to.equal(text);
        expect(told[1]).to.include({ by: text, worker_id: text });
        expect(told[2]).to.include({ by: text, note: text });
        expect(told[3]).to.include({ by: text, reason: text });
      });
    }

    it('stores the keys constructor, prototype, toString and the empty one like any other', async () => {
      const text = `{"constructor":{"prototype":{"polluted":1}},"prototype":{"polluted":1},
        "toString":"a","hasOwnProperty":1,"then":"no promise","toJSON":"b","length":9,"":{"":[]}}`;
      const least = '"addon_id":"a","job_type":"t","cost_units":1';
      const answer = await postAs(
        server,
        `${jobsPath}/submit`,
        `{${least},"payload":${text},"constructor":{"prototype":{"polluted":1}}}`,
      );
      expect(answer.status).to.equal(201);
      const { job } = await read(server, answer.body.job.job_id);
      expect(JSON.stringify(job.payload.constructor)).to.equal('{"prototype":{"polluted":1}}');
      expect(job.payload).to.deep.equal(JSON.parse(text));
      expect(Object.keys(job.payload)).to.have.length(8);
    });
  });
});
