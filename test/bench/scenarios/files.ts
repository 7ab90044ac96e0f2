import type { FileRound } from '../load/file-tasks.ts';
import { rateGoal } from '../measure.ts';
import type { Playing, Scenario, Served } from '../scenario.ts';
import { type Entrant, playAlone } from '../turns.ts';

const inFlight = 64;
const connections = 4;
const owners = 1_000;
const unit = 'calls/s';

/** Acquiring files: free ones, ones that somebody holds for the first time, and again while a thousand owners wait. */
export const files: Scenario = {
  name: 'files',
  about: `AcquireFileLeases, one file a call, ${inFlight} in flight: free files, held files, a file with a thousand waiters`,
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const served = await bench.someServer();
    for (const entrant of entrantsOf(bench, served)) await playAlone(bench, unit, entrant);
  },
  compared: { unit, entrants: entrantsOf },
};

/** One kind of call; of its answers none may be of another kind. */
interface Asking {
  name: string;
  prepare?(): Promise<void>;
  ask(durationMs: number): Promise<FileRound>;
}

function entrantsOf(bench: Playing, { server }: Served): Entrant[] {
  const { sizes } = bench;
  return askingsOf(bench, server.grpc).map(({ name, prepare, ask }) => {
    let wrong = 0;
    return {
      name,
      side: 'ours',
      server,
      goal: sizes.judged ? rateGoal(bench, 5_000) : undefined,
      ...(prepare ? { prepare } : {}),
      async play(share) {
        const round = await ask(share * sizes.roundMs);
        wrong += round.wrong;
        return round;
      },
      failure: () => (wrong > 0 ? `${wrong} answers were of another kind` : undefined),
    };
  });
}

function askingsOf({ load, sizes }: Playing, address: string): Asking[] {
  const target = { address, client: sizes.client, connections };
  const calls = sizes.claims;
  let held = 0;
  return [
    {
      name: 'free files',
      ask: (durationMs) => load.run('acquireFiles', { target, inFlight, durationMs }),
    },
    {
      name: 'held files, each denied for the first time',
      async prepare() {
        const { wrong } = await load.run('holdFiles', { target, inFlight, from: held, files: calls });
        if (wrong > 0) throw new Error('the files could not be held');
        held += calls;
      },
      ask: () => load.run('contendForFiles', { target, inFlight, from: held - calls, calls }),
    },
    {
      name: `one file, ${owners.toLocaleString('en')} owners that wait for it`,
      prepare: () => load.run('keepHolder', { target, inFlight }),
      ask: (durationMs) => load.run('waitForFiles', { target, inFlight, owners, durationMs }),
    },
  ];
}
