import { findRedis, startRedis } from '../../support/redis.ts';
import type { WorkerRound } from '../load/worker-tasks.ts';
import { rateGoal, samples, throughput } from '../measure.ts';
import type { Playing, Scenario } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';
import { type Entrant, playAlone } from '../turns.ts';

const workers = 64;
const waiting = 100;
const perSecond = 500;
const connections = 4;
const unit = 'jobs/s';

export const workerRest: Scenario = {
  name: 'worker-rest',
  about: `Claim and complete over REST, ${workers} workers`,
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const { server } = await bench.someServer();
    await playAlone(bench, unit, working(bench, server, '', 4_000));
    await bench.stopServers();
    if (bench.engine === 'embedded' || findRedis() === undefined) return;
    await using redis = await startRedis();
    const store = await bench.stage.newStore();
    const carried = await bench.serve(
      { ...store, env: { ...store.env, REDIS_URL: redis.url } },
      'worker-redis',
    );
    await playAlone(bench, unit, working(bench, carried, ', messages on Redis', 3_000));
    await bench.stopServers();
  },
  compared: { unit, entrants: (bench, { server }) => [working(bench, server, '', 4_000)] },
};

function working(bench: Playing, server: ServerProcess, how: string, goal: number): Entrant {
  const { load, sizes } = bench;
  const stream = 'work';
  const target = { address: server.grpc, client: sizes.client, connections };
  const jobs = sizes.workerJobs;
  const rounds: WorkerRound[] = [];
  return {
    name: `claim and complete, ${workers} workers${how}`,
    side: 'ours',
    server,
    goal: sizes.judged ? rateGoal(bench, goal) : undefined,
    prepare: async () => void (await load.run('fill', { target, jobs, stream })),
    async play() {
      const round = await load.run('work', { address: server.http, stream, workers, jobs });
      rounds.push(round);
      return round;
    },
    failure: () => failureOf(rounds),
  };
}

function failureOf(taken: readonly WorkerRound[]): string | undefined {
  const sum = (of: (round: WorkerRound) => number) => taken.reduce((total, round) => total + of(round), 0);
  const duplicates = sum((round) => round.duplicates);
  if (duplicates > 0) return `${duplicates} jobs were handed out twice`;
  const empty = sum((round) => round.empty);
  return empty > 0 ? `${empty} claims got nothing although jobs were queued` : undefined;
}

export const workerWaiting: Scenario = {
  name: 'worker-waiting',
  about: `${perSecond} jobs a second to ${waiting} workers that wait, over REST: from the submission to the worker`,
  engines: ['postgresql', 'embedded'],
  async run(bench) {
    const { load, sizes } = bench;
    const { server } = await bench.someServer();
    const taken = await samples(bench, server, (durationMs) =>
      load.run('waitForWork', {
        address: server.http,
        stream: 'waiting',
        workers: waiting,
        perSecond,
        durationMs,
      }),
    );
    const { latency, cpu } = throughput('', '', taken);
    const unanswered = taken.reduce((sum, round) => sum + round.unanswered, 0);
    const failure = unanswered > 0 ? `${unanswered} jobs never came` : undefined;
    const judged = (below: number) => (sizes.judged && bench.engine === 'postgresql' ? { below } : undefined);
    const percentiles = [
      ['p50', 'p50Ms', 5],
      ['p99', 'p99Ms', 25],
    ] as const;
    for (const [name, of, below] of percentiles) {
      bench.report({
        name: `after the submission's answer, ${name}`,
        unit: 'ms',
        values: taken.map(({ afterAnswer }) => afterAnswer[of]),
        goal: judged(below),
        failure,
      });
    }
    for (const [name, of] of percentiles) {
      bench.report({
        name: `after the submission was sent, ${name}`,
        unit: 'ms',
        values: taken.map((round) => round.latency[of]),
        failure,
        ...(of === 'p99Ms' ? { latency, cpu } : {}),
      });
    }
  },
};
