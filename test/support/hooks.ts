/**
 * What holds for the whole run, whichever tests it has: everything declared required is here, nothing is left behind,
 * and no promise is rejected into the void. Mocha itself swallows unhandled rejections and waits for ever for a timer
 * that somebody forgot; here both fail the run and say what it was.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';
import { aliveSince, type Snapshot, snapshot } from './alive.ts';
import { cleanUp } from './cleanup.ts';
import { closeForgotten } from './engines.ts';
import { checkRequired } from './programs.ts';

const closeLimitMs = 30_000;
const settleLimitMs = 2_000;
const exitLimitMs = 2_000;
const exitAfterLeakMs = 100;

const rejections: string[] = [];
let before: Snapshot | undefined;
let lastTest = 'no test';

process.on('unhandledRejection', (reason) => {
  rejections.push(`a rejection nobody handled, during or after '${lastTest}': ${inspect(reason)}`);
});

/** Closing sockets and ending processes take a moment, so the look is repeated until nothing is left or time is up. */
async function leftovers(): Promise<string[]> {
  const deadline = performance.now() + settleLimitMs;
  for (;;) {
    const alive = before ? aliveSince(before) : [];
    if (alive.length === 0 || performance.now() > deadline) return alive;
    await delay(20);
  }
}

async function closeEverything(): Promise<string[]> {
  const forgotten = await closeForgotten();
  const failures = await cleanUp();
  return [...forgotten, ...failures.map((error) => `cleaning up failed: ${inspect(error)}`)];
}

/** Ends a process that should have ended by itself. Its timer does not keep the process alive, so it rarely fires. */
function watchForHang(isTold: boolean): void {
  const end = () => {
    const alive = before ? aliveSince(before) : [];
    if (alive.length > 0 && !isTold) {
      process.stderr.write(`the run is over, but still alive are:\n${alive.join('\n')}\n`);
    }
    // Mocha sets its own exit code in a listener of this event; a later listener has the last word.
    process.on('exit', () => {
      process.exitCode = 1;
    });
    process.exit(1);
  };
  setTimeout(end, isTold ? exitAfterLeakMs : exitLimitMs).unref();
}

export function mochaGlobalSetup(): void {
  checkRequired();
  before = snapshot();
}

async function findProblems(): Promise<string[]> {
  const tooLate = new AbortController();
  const problems = await Promise.race([
    closeEverything(),
    delay(closeLimitMs, ['closing everything took too long and was given up'], { signal: tooLate.signal }),
  ]);
  tooLate.abort();
  const alive = await leftovers();
  if (alive.length > 0) {
    problems.push(`still alive after everything was closed:\n${alive.join('\n')}`);
    if (!process.env.LEASEHOLD_TEST_TRACE) problems.push('LEASEHOLD_TEST_TRACE=1 tells where each was made');
  }
  return [...problems, ...rejections];
}

export async function mochaGlobalTeardown(): Promise<void> {
  let problems: string[] = [];
  try {
    problems = await findProblems();
  } finally {
    watchForHang(problems.length > 0);
  }
  if (problems.length === 0) return;
  const failure = new Error(problems.join('\n'));
  // Mocha prints the stack, and ours would only lead to this line.
  failure.stack = failure.message;
  throw failure;
}

export const mochaHooks = {
  beforeEach(this: Mocha.Context): void {
    lastTest = this.currentTest?.fullTitle() ?? lastTest;
  },
};
