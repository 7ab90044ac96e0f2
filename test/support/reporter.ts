/**
 * The report of a test run: suites and their tests as they end, failures in full, the engines that were covered, and
 * as the very last line 'N passed, N failed', which CI adds up. What fails outside any test counts as a failure too.
 */
import Mocha from 'mocha';
import { coverage } from './engines.ts';
import { notRunLine } from './programs.ts';
import { countsLine, failuresFollow } from './report-lines.ts';

const { Base } = Mocha.reporters;

export default class Reporter extends Base {
  #depth = 0;
  #finished = false;

  constructor(runner: Mocha.Runner, options: Mocha.MochaOptions) {
    super(runner, options);
    runner.on('suite', (suite) => {
      if (!suite.root) this.#write(Base.color('suite', printable(suite.title)));
      this.#depth += 1;
    });
    runner.on('suite end', () => {
      this.#depth -= 1;
    });
    runner.on('pass', (test) => {
      const slow = test.speed === 'fast' ? '' : Base.color('medium', ` (${test.duration} ms)`);
      this.#write(
        `${Base.color('checkmark', Base.symbols.ok)} ${Base.color('pass', printable(test.title))}${slow}`,
      );
    });
    runner.on('fail', (test, error: unknown) => {
      tellOfSuppressed(error);
      this.#write(
        Base.color('fail', `${Base.symbols.err} ${printable(test.title)} (failure ${this.failures.length})`),
      );
    });
    runner.on('pending', (test) => this.#write(Base.color('pending', `- ${printable(test.title)}`)));
    // A test that ends the process would otherwise end it in silence, and with the exit code of its choice.
    process.on('exit', () => {
      if (this.#finished) return;
      Base.consoleLog('the process ended before the run did');
      this.done(runner.failures + 1);
      process.exitCode = 1;
    });
  }

  /** Mocha calls this after the global teardown, whose failure is in `failures` and in no test. */
  override done(failures: number, finish?: (failures: number) => void): void {
    this.#finished = true;
    if (this.failures.length > 0) {
      Base.consoleLog(`\n${failuresFollow}`);
      Base.list(this.failures);
    }
    const { passes = 0, pending = 0, duration } = this.stats;
    const skipped = pending > 0 ? `, ${pending} pending` : '';
    const time = duration === undefined ? '' : ` in ${(duration / 1000).toFixed(1)} s`;
    Base.consoleLog(`\n${passes + this.failures.length + pending} results${time}${skipped}`);
    Base.consoleLog(coverage());
    const left = notRunLine();
    if (left !== undefined) Base.consoleLog(left);
    Base.consoleLog(countsLine(passes, failures));
    finish?.(failures);
  }

  #write(text: string): void {
    Base.consoleLog('  '.repeat(Math.max(this.#depth - 1, 0)) + text);
  }
}

/** Titles of tests on bad input hold bad input; a NUL would turn the whole log into a binary file. */
function printable(title: string): string {
  return title.replace(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}

/** A test that fails and whose cleaning up fails as well has two things to tell; by itself it tells of neither. */
function tellOfSuppressed(error: unknown): void {
  if (!(error instanceof SuppressedError)) return;
  const words = (one: unknown) => (one instanceof Error ? one.stack : String(one));
  error.stack = `${error.stack}\nfirst: ${words(error.suppressed)}\nthen: ${words(error.error)}`;
}
