import { Code, ConnectError } from '@connectrpc/connect';
import { errorFromJsonBytes } from '@connectrpc/connect/protocol-connect';
import { expect } from 'chai';
import { expectRefusal, expectUnharmed, postAs } from '../../support/bad-requests.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Answer, claimedJob, get, jobsPath, newAddon, submit } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { expectRpcError, pathOf } from '../../support/wires.ts';

/** As deep as a body of 1 MiB can be, or nearly. */
const deep: Record<string, string> = {
  '200,000 lists': '['.repeat(200_000) + ']'.repeat(200_000),
  '100,000 objects': `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`,
};

const fields: Record<string, string[]> = {
  submit: ['addon_id', 'job_type', 'priority', 'cost_units', 'client_request_id', 'stream', 'unique', 'tags'],
  'submit, too': ['max_runtime_s', 'max_attempts', 'retry_backoff_s', 'run_at', 'payload', 'constraints'],
  claim: ['worker_id', 'addon_id', 'limit', 'accept_job_types', 'max_cost_units', 'request_id'],
  'claim, too': ['constraints_capabilities'],
  status: ['state', 'note', 'progress', 'worker_id'],
  cancel: ['reason', 'requested_by'],
  retry: ['reason', 'requested_by'],
};

onEveryEngine((engine) => {
  describe('a value nested as deeply as a body can hold', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    for (const [what, value] of Object.entries(deep)) {
      for (const [route, names] of Object.entries(fields)) {
        it(`refuses ${what} deep in each field of ${route} over REST, by name`, async () => {
          const { job_id } = await claimedJob(server);
          const good: Record<string, [string, object]> = {
            submit: ['submit', { addon_id: 'a', job_type: 't', cost_units: 1 }],
            claim: ['claim', { worker_id: 'w' }],
            status: [`${job_id}/status`, { state: 'CLAIMED' }],
            cancel: [`${job_id}/cancel`, {}],
            retry: [`${job_id}/retry`, {}],
          };
          const [path, body] = good[route.split(',', 1)[0] ?? ''] as [string, object];
          for (const name of names) {
            const { [name]: _, ...rest } = body as Record<string, unknown>;
            const text = JSON.stringify({ ...rest, unknown: 0 }).slice(0, -1);
            const answer = await postAs(server, `${jobsPath}/${path}`, `${text},"${name}":${value}}`);
            expectRefusal(answer, 400, 'invalid_request', name);
            expect(answer.text.length, 'characters of the refusal').to.be.below(1_000);
          }
        });
      }

      const messages: Record<string, string[]> = {
        addonId: ['addon_id'],
        priority: ['priority'],
        costUnits: ['cost_units'],
        tags: ['tags'],
        unique: ['unique'],
        runAt: ['run_at'],
        clientRequestId: ['client_request_id'],
        // A body nested too deeply for its decoder is refused as a whole.
        payload: ['payload', 'body'],
      };
      for (const [name, allowed] of Object.entries(messages)) {
        it(`refuses ${what} deep in ${name} over Connect in JSON`, async () => {
          const least = JSON.stringify({ addonId: 'a', jobType: 't', costUnits: 1, [name]: undefined });
          const response = await fetch(`${server.http}${pathOf('SubmitJob')}`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: `${least.slice(0, -1)},"${name}":${value}}`,
          });
          const bytes = new Uint8Array(await response.arrayBuffer());
          expect(response.status, new TextDecoder().decode(bytes)).to.equal(400);
          const unknown = new ConnectError('not an error in JSON', Code.Unknown);
          const error = errorFromJsonBytes(bytes, undefined, unknown);
          const { field } = expectRpcError(error, Code.InvalidArgument, 'invalid_request');
          expect(field, error.rawMessage).to.be.oneOf(allowed);
          expect(error.rawMessage.length, 'characters of the refusal').to.be.below(1_000);
        });
      }

      it(`refuses or ignores ${what} deep in an unknown field`, async () => {
        const body = `{"addon_id":"a","job_type":"t","cost_units":1,"unknown":${value}}`;
        const answer = await postAs(server, `${jobsPath}/submit`, body);
        if (answer.status !== 201) expectRefusal(answer, 400, 'invalid_request', 'unknown');
      });

      it(`refuses a whole body of ${what}`, async () => {
        const answer = await postAs(server, `${jobsPath}/submit`, value);
        expectRefusal(answer, 400, 'invalid_request');
      });
    }
  });

  describe('whole numbers that a double cannot hold', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(() => expectUnharmed(server));
    after(() => server.stop());

    const send = (more: string): Promise<Answer> => {
      const least = `"addon_id":${JSON.stringify(newAddon())},"job_type":"t","cost_units":1`;
      return postAs(server, `${jobsPath}/submit`, `{${least},${more}}`);
    };

    const refused: Record<string, string> = {
      'payload.id': '"payload":{"id":12345678901234567890}',
      'payload.negative': '"payload":{"negative":-12345678901234567890}',
      'payload.odd': '"payload":{"odd":9007199254740993}',
      'payload.list[1].id': '"payload":{"list":[1,{"id": 12345678901234567890 }]}',
      'payload.deep.er[0]': '"payload" : { "fine" : "\\"[{" , "deep" : { "er" : [ 12345678901234567891 ] } }',
      'constraints.most': '"constraints":{"most":18446744073709551615}',
    };
    for (const [place, text] of Object.entries(refused)) {
      it(`refuses a whole number that a double cannot hold by its place: ${place}`, async () => {
        const answer = await send(text);
        expectRefusal(answer, 400, 'invalid_request', place.split('.', 1)[0]);
        expect(answer.body.field, answer.text).to.equal(place);
      });
    }

    for (const field of ['cost_units', 'max_attempts', 'retry_backoff_s']) {
      it(`refuses a whole number that a double cannot hold by its field: ${field}`, async () => {
        const text = `{"addon_id":"a","job_type":"t","cost_units":1,"${field}":12345678901234567890}`;
        const answer = await postAs(server, `${jobsPath}/submit`, text);
        expectRefusal(answer, 400, 'invalid_request', field);
      });
    }

    const kept: Record<string, [text: string, value: unknown]> = {
      'the largest safe number': ['9007199254740991', 9_007_199_254_740_991],
      'the smallest safe number': ['-9007199254740991', -9_007_199_254_740_991],
      'a large number with an exponent': ['1.5e300', 1.5e300],
      'a small number': ['1e-7', 1e-7],
      'a fraction with many digits': ['0.1000000000000000055511151231257827', 0.1],
      'digits within text': ['"12345678901234567890"', '12345678901234567890'],
      'digits after a quote within text': ['"\\":12345678901234567890,"', '":12345678901234567890,'],
      'a backslash at the end of a text': ['["\\\\",9007199254740991]', ['\\', 9_007_199_254_740_991]],
      zero: ['0', 0],
    };
    for (const [what, [text, value]] of Object.entries(kept)) {
      it(`keeps ${what} in a payload as it is`, async () => {
        const answer = await send(`"payload":{"n":${text}}`);
        expect(answer.status, answer.text).to.equal(201);
        const { body } = await get(server, `${jobsPath}/${answer.body.job.job_id}`);
        expect(body.job.payload).to.deep.equal({ n: value });
      });
    }

    it('reports too deep nesting for a number that a double cannot hold in 100,000 lists', async () => {
      const lists = `${'['.repeat(100_000)}9007199254740991${']'.repeat(100_000)}`;
      const answer = await send(`"payload":{"deep":${lists}}`);
      expectRefusal(answer, 400, 'invalid_request');
      expect(answer.body.detail).not.to.match(/UTF-8|JSON$/);
    });

    it('accepts a member name that consists of digits', async () => {
      const answer = await send('"payload":{"12345678901234567890":1}');
      expect(answer.status, answer.text).to.equal(201);
      await submit(server, { payload: { '12345678901234567890': '12345678901234567890' } });
    });
  });
});
