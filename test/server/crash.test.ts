/**
 * The guarantee: a write that a server acknowledged exists after the server was killed at any moment. An
 * unacknowledged write exists completely or not at all.
 */
import { expect } from 'chai';
import { OnDuplicate } from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { type ServerProcess, startServer, until } from '../support/process.ts';
import { connect, createStore, openStore } from '../support/server-clients.ts';
import { Ledger, problemsIn } from './ledger.ts';
import { Load, submission } from './load.ts';

const rounds = 3;
/** The maximum number of acknowledged writes before the kill. */
const writesMax = 500;
/**
 * The number of the newest acknowledged writes, which are most at risk, that the test reads after every
 * restart.
 */
const lastJobs = 30;

/** Runs clients against a server, and kills it while they work. */
async function killUnderLoad(server: ServerProcess, ledger: Ledger, isLast: boolean): Promise<void> {
  const enough = ledger.acknowledged + 1 + Math.floor(Math.random() * writesMax);
  await using load = new Load(server, ledger, { endsAtFailure: true });
  await until(
    `${enough} acknowledged writes`,
    // Before the last kill every kind of write has happened, however slow the machine.
    () => (ledger.acknowledged >= enough && (!isLast || hasEveryKind(ledger))) || load.failures.length > 0,
  );
  const early = load.failures.length;
  const exit = await server.kill();
  expect(early, `calls failed before the server was killed: ${JSON.stringify(load.failures)}`).to.equal(0);
  expect(exit.signal).to.equal('SIGKILL');
}

const hasEveryKind = ({ claimed, prepared, canceled }: Ledger): boolean =>
  claimed.size > 0 && prepared.size > 0 && canceled.size > 0;

/** Reads the newest acknowledged jobs through the next server. */
async function findLastJobs(server: ServerProcess, ledger: Ledger): Promise<void> {
  using client = connect(server);
  for (const [jobId, { key, n }] of [...ledger.submitted].slice(-lastJobs)) {
    const { job } = await client.jobs.getJob({ jobId });
    expect([job?.clientRequestId, job?.payload?.n]).to.deep.equal([key, n]);
  }
}

/** A client that lost its answer repeats the call with the same key, and must end up with one job. */
async function sendUnansweredAgain(server: ServerProcess, ledger: Ledger): Promise<void> {
  using client = connect(server);
  const sent = [...ledger.unanswered.values()];
  const onDuplicate = OnDuplicate.RETURN_EXISTING;
  const jobs = sent.map((one) => ({ ...submission(one), onDuplicate }));
  const { outcomes } = await client.jobs.submitJobs({ jobs });
  for (const [i, { outcome }] of outcomes.entries()) {
    const one = sent[i];
    if (outcome.case !== 'submitted' || !one) throw new Error('a submission sent again was refused');
    ledger.enter(outcome.value.jobId, one);
  }
}

describe('a server that is killed under load', () => {
  onEveryEngine((engine) => {
    it('loses no acknowledged write, and leaves no transaction half done', async () => {
      await using store = await createStore(engine);
      const env = { ...store.env, LEASEHOLD_CLAIM_TTL_S: '3600' };
      const ledger = new Ledger();
      for (let round = 1; round <= rounds; round++) {
        await using server = await startServer(env);
        await findLastJobs(server, ledger);
        await sendUnansweredAgain(server, ledger);
        await killUnderLoad(server, ledger, round === rounds);
      }
      {
        await using server = await startServer(env);
        await findLastJobs(server, ledger);
        await sendUnansweredAgain(server, ledger);
        expect(ledger.unanswered.size).to.equal(0);
        expect((await server.stop()).code).to.equal(0);
      }
      await using database = await openStore(store);
      expect((await problemsIn(database, ledger)).slice(0, 10)).to.deep.equal([]);
      expect(hasEveryKind(ledger), 'every kind of write').to.equal(true);
    }).timeout(60_000);
  });
});
