import { expect } from 'chai';

/** What a promise fails with. One that does not fail fails the test. */
export const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => expect.fail('it did not fail'),
    (error: unknown) => error,
  );
