import type { FileRound } from '../load/file-tasks.ts';
import { rateGoal, type Sample, sample, samples, throughput } from '../measure.ts';
import type { Bench, Scenario } from '../scenario.ts';

const inFlight = 64;
const connections = 4;
const owners = 1_000;

/** Acquiring files: free ones, ones that somebody holds for the first time, and again while a thousand owners wait. */
export const files: Scenario = {
  name: 'files',
  about: `AcquireFileLeases, one file a call, ${inFlight} in flight: free files, held files, a file with a thousand waiters`,
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const { load, sizes } = bench;
    const { server } = await bench.someServer();
    const target = { address: server.grpc, client: sizes.client, connections };
    const goal = sizes.judged ? rateGoal(bench, 5_000) : undefined;
    const free = await samples(bench, server, (durationMs) =>
      load.run('acquireFiles', { target, inFlight, durationMs }),
    );
    report(bench, 'free files', free, goal);

    const rounds = sizes.repeats + 1;
    const held = await load.run('holdFiles', { target, inFlight, files: rounds * sizes.claims });
    if (held.wrong > 0) throw new Error('the files could not be held');
    const denied: (FileRound & Sample)[] = [];
    for (let round = 0; round < rounds; round++) {
      const from = round * sizes.claims;
      await load.run('keepHolder', { target, inFlight });
      const taken = await sample(bench, server, () =>
        load.run('contendForFiles', { target, inFlight, from, calls: sizes.claims }),
      );
      if (round > 0) denied.push(taken);
    }
    report(bench, 'held files, each denied for the first time', denied, goal);

    const again = await samples(bench, server, async (durationMs) => {
      await load.run('keepHolder', { target, inFlight });
      return load.run('waitForFiles', { target, inFlight, owners, durationMs });
    });
    report(bench, `one file, ${owners.toLocaleString('en')} owners that wait for it`, again, goal);
  },
};

function report(
  bench: Bench,
  name: string,
  taken: readonly (FileRound & Sample)[],
  goal: { atLeast: number } | undefined,
): void {
  const wrong = taken.reduce((sum, round) => sum + round.wrong, 0);
  const failure = wrong > 0 ? `${wrong} answers were of another kind` : undefined;
  bench.report({ ...throughput(name, 'calls/s', taken, goal), failure });
}
