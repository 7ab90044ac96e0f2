import { expect } from 'chai';
import { OpenCalls } from '../../../src/lib/async/wait-group.ts';

describe('open calls', () => {
  it('are none at first', async () => {
    await new OpenCalls().none();
  });

  it('let all go who wait for the last, and no sooner', async () => {
    const calls = new OpenCalls();
    const gone: string[] = [];
    const wait = (name: string) => calls.none().then(() => gone.push(name));
    calls.begin();
    calls.begin();
    const waiting = [wait('first'), wait('second')];
    calls.end();
    await Promise.resolve();
    expect(gone).to.deep.equal([]);
    calls.end();
    await Promise.all(waiting);
    expect(gone).to.deep.equal(['first', 'second']);
  });

  it('are waited for again when there are some again', async () => {
    const calls = new OpenCalls();
    calls.begin();
    calls.end();
    await calls.none();
    calls.begin();
    let isOver = false;
    const over = calls.none().then(() => {
      isOver = true;
    });
    await Promise.resolve();
    expect(isOver).to.equal(false);
    calls.end();
    await over;
  });
});
