import { expect } from 'chai';
import { deleteLostMessages, inspectMessages, nowhere } from '../../../src/store/sql/streams/outbox.ts';
import { type Body, read } from '../../support/jobs-api.ts';
import { plenty } from '../../support/leases-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { onEveryTransport } from '../../support/transports.ts';
import { claimedFrom, complete, enqueue, fail, newStream, runningJob } from '../../support/worker-api.ts';

onEveryTransport(({ name, start }) => {
  describe('the message named by a worker', () => {
    let server: TestServer;
    before(async () => {
      server = await start({ settings: { leaseTtlS: 60, capacityTotal: plenty } });
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    /** Message names that do not belong to the attempt. */
    const wrongMessages = (claim: Body, other: Body): [object, string][] => [
      [{ stream: 'zzz' }, 'stream'],
      [{ stream: other.stream.name }, 'stream'],
      [{ stream: 'zzz', message_id: '9-9' }, 'stream'],
      [{ message_id: '9-9' }, 'message_id'],
      [{ message_id: other.stream.message_id }, 'message_id'],
      [{ message_id: `${claim.job_id}:2` }, 'message_id'],
      [{ message_id: `${other.job_id}:1` }, 'message_id'],
      [{ message_id: `${claim.job_id}:` }, 'message_id'],
      [{ message_id: 'rubbish:' }, 'message_id'],
    ];

    const verbs = [
      ['complete', complete, {}],
      ['fail', fail, { requeued: false, dlq: false }],
    ] as const;
    for (const [verb, end, more] of verbs) {
      it(`refuses to ${verb} an attempt that names another message (D5)`, async () => {
        const claim = await runningJob(server);
        const other = await runningJob(server);
        for (const [fields, field] of wrongMessages(claim, other)) {
          const { status, body, text } = await end(server, claim, fields);
          const { detail, ...rest } = body;
          expect(status, text).to.equal(409);
          expect(detail).to.be.a('string');
          expect(rest, text).to.deep.equal({
            ok: false,
            ack: false,
            ...more,
            code: 'message_mismatch',
            field,
          });
        }
        expect((await read(server, claim.job_id)).job.state, 'nothing was written').to.equal('RUNNING');
        expect((await end(server, claim)).body).to.include({ ok: true, ack: true });
      });
    }

    it("accepts either part of a message's name, or none (D5)", async () => {
      for (const left of [['stream'], ['message_id'], ['stream', 'message_id']]) {
        const claim = await runningJob(server);
        const absent = Object.fromEntries(left.map((field) => [field, null]));
        expect((await complete(server, claim, absent)).body).to.deep.equal({ ok: true, ack: true });
      }
    });

    it('checks the message before it reports an ended attempt and acknowledges it (D5)', async () => {
      const claim = await runningJob(server, { max_attempts: 2 });
      await fail(server, claim);
      const successor = await claimedFrom(server, [claim.name]);
      for (const fields of [{ stream: 'zzz' }, { message_id: `${claim.job_id}:2` }, { message_id: '9-9' }]) {
        for (const end of [complete, fail]) {
          const { body } = await end(server, claim, fields);
          expect(body).to.include({ ok: false, ack: false, code: 'message_mismatch' });
        }
      }
      expect((await complete(server, claim)).body).to.include({ ok: false, ack: true });
      expect((await complete(server, successor)).body).to.deep.equal({ ok: true, ack: true });
    });

    it('checks the message of a repeated completion (D5)', async () => {
      const claim = await runningJob(server);
      expect((await complete(server, claim)).body).to.deep.equal({ ok: true, ack: true });
      expect((await complete(server, claim)).body).to.deep.equal({ ok: true, ack: true });
      for (const fields of [{ stream: 'zzz' }, { message_id: '9-9' }]) {
        const wrong = await complete(server, claim, fields);
        expect(wrong.body).to.include({ ok: false, ack: false, code: 'message_mismatch' });
      }
    });

    if (name === 'redis') {
      it('accepts the name that a message had before it was sent again (D5)', async () => {
        const stream = newStream();
        const { job_id } = await enqueue(server, stream);
        await eventually('its message has a name', async () => {
          const sent = 'select from stream_messages where job_id = $1 and message_id is not null';
          return (await server.database.query(sent, [job_id])).length > 0 ? true : undefined;
        });
        const claim = await claimedFrom(server, [stream]);
        expect(claim.stream.message_id).to.match(/^\d+-\d+$/);
        const seen = await inspectMessages(server.database, nowhere, 200);
        const lost = seen.found.filter(({ jobId }) => jobId === claim.job_id);
        expect(await deleteLostMessages(server.database, lost)).to.have.length(1);
        expect((await complete(server, claim, { message_id: '9-9' })).body).to.include({
          ok: false,
          ack: false,
        });
        expect((await complete(server, claim)).body).to.deep.equal({ ok: true, ack: true });
        expect((await complete(server, claim)).body).to.deep.equal({ ok: true, ack: true });
      });
    }

    for (const [how, error] of [
      ['no error', undefined],
      ['null', null],
      ['words alone', 'it broke'],
      ['an error without it', { code: 'E_BROKEN', message: 'it broke', stack: null }],
      ['null in it', { code: 'E_BROKEN', retryable: null }],
    ] as const) {
      it(`keeps the attempts of a job whose worker fails with ${how} (D4)`, async () => {
        const claim = await runningJob(server);
        const { body } = await fail(server, claim, { error });
        expect(body).to.deep.equal({ ok: true, ack: true, requeued: true, dlq: false });
        expect((await claimedFrom(server, [claim.name])).attempt).to.equal(2);
      });
    }

    it('makes a job a dead letter and acknowledges its message if the failure is final (D4)', async () => {
      const claim = await runningJob(server);
      const { body } = await fail(server, claim, { error: { message: 'no', retryable: false } });
      expect(body).to.deep.equal({ ok: true, ack: true, requeued: false, dlq: true });
    });
  });
});
