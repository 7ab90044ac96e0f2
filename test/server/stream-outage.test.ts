/**
 * The guarantee: a database outage ends no stream, and items that failed because of it are answered
 * `unavailable`.
 */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { expect } from 'chai';
import { FinalStatus } from '../../gen/leasehold/v1/jobs_pb.js';
import {
  LeasesService,
  type StreamHeartbeatsRequestSchema,
  type StreamWorkRequestSchema,
  type StreamWorkResponse,
} from '../../gen/leasehold/v1/leases_pb.js';
import { findPostgres, startPostgres } from '../support/postgres.ts';
import { startServer, until } from '../support/process.ts';
import { connect, createPostgresStore } from '../support/server-clients.ts';

/** A client's messages, sent whenever the test calls `send`. */
class Outbox<T> implements AsyncIterable<T> {
  readonly #waiting: T[] = [];
  #notice = () => {};
  #isOver = false;

  send(message: T): void {
    this.#waiting.push(message);
    this.#notice();
  }

  end(): void {
    this.#isOver = true;
    this.#notice();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<T> {
    for (;;) {
      for (const message of this.#waiting.splice(0)) yield message;
      if (this.#isOver) return;
      if (this.#waiting.length > 0) continue;
      await new Promise<void>((resolve) => {
        this.#notice = resolve;
      });
    }
  }
}

if (findPostgres()) {
  describe('streams in an outage of the database', () => {
    it('keeps streams open, answers unavailable, and continues after the outage (C20)', async () => {
      const cluster = await startPostgres({ durable: false });
      const store = await createPostgresStore(cluster);
      await using server = await startServer({ ...store.env, LEASEHOLD_LEASE_TTL_S: '600' });
      using client = connect(server);
      const baseUrl = `http://${server.grpc}`;
      const sessionManager = new Http2SessionManager(baseUrl);
      const leases = createClient(LeasesService, createGrpcTransport({ baseUrl, sessionManager }));
      const job = { addonId: 'a', jobType: 't', costUnits: 1 };

      const work = new Outbox<MessageInitShape<typeof StreamWorkRequestSchema>>();
      const beats = new Outbox<MessageInitShape<typeof StreamHeartbeatsRequestSchema>>();
      const heard: StreamWorkResponse[] = [];
      const verdicts: (string | undefined)[] = [];
      const ends: string[] = [];
      const listening = [
        (async () => {
          for await (const frame of leases.streamWork(work)) heard.push(frame);
          ends.push('work');
        })().catch((error: unknown) => ends.push(`work: ${error}`)),
        (async () => {
          for await (const frame of leases.streamHeartbeats(beats))
            verdicts.push(...frame.verdicts.map(({ outcome }) => outcome.case));
          ends.push('beats');
        })().catch((error: unknown) => ends.push(`beats: ${error}`)),
      ];
      try {
        await client.jobs.submitJob(job);
        work.send({ workerId: 'w', credits: [{ jobs: 2 }] });
        const grants = () => heard.flatMap((frame) => frame.grants);
        await until('a grant', () => grants().length === 1);
        const { leaseId = '', leaseToken } = grants()[0]?.lease ?? {};
        const beat = { heartbeats: [{ leaseId, workerId: 'w' }] };
        work.send(beat);
        beats.send(beat);
        const lastVerdict = () => heard.flatMap((frame) => frame.verdicts).at(-1)?.outcome.case;
        await until('both verdicts', () => lastVerdict() === 'extended' && verdicts.at(-1) === 'extended');

        await cluster.kill();
        const release = { releases: [{ leaseId, leaseToken, status: FinalStatus.SUCCEEDED }] };
        const lastRelease = () => heard.flatMap((frame) => frame.releases).at(-1)?.outcome;
        work.send(beat);
        beats.send(beat);
        work.send(release);
        await until(
          'unavailable',
          () => lastVerdict() === 'unavailable' && verdicts.at(-1) === 'unavailable',
        );
        await until('an answer to the release', () => lastRelease() !== undefined);
        const refused = lastRelease();
        expect(refused?.case === 'refused' && refused.value.code).to.equal('unavailable');
        expect(ends).to.deep.equal([]);

        await cluster.restart();
        await until(
          'the server to be ready',
          async () => (await client.rest('GET', '/readyz')).status === 200,
        );
        work.send(beat);
        beats.send(beat);
        await until('verdicts', () => lastVerdict() === 'extended' && verdicts.at(-1) === 'extended');
        work.send(release);
        await until('the job to be handed in', () => lastRelease()?.case === 'ended');
        await client.jobs.submitJob(job);
        await until('a grant from the credit that was left', () => grants().length === 2);
        expect(ends).to.deep.equal([]);
        work.end();
        beats.end();
        await Promise.all(listening);
        expect(ends.sort()).to.deep.equal(['beats', 'work']);
      } finally {
        sessionManager.abort();
        await server.kill();
        await cluster.stop();
      }
    }).timeout(90_000);
  });
}
