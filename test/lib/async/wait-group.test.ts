import { expect } from 'chai';
import { WaitGroup } from '../../../src/lib/async/wait-group.ts';

describe('open calls', () => {
  it('are none at first', async () => {
    await new WaitGroup().wait();
  });

  it('let all go who wait for the last, and no sooner', async () => {
    const calls = new WaitGroup();
    const gone: string[] = [];
    const wait = (name: string) => calls.wait().then(() => gone.push(name));
    calls.add();
    calls.add();
    const waiting = [wait('first'), wait('second')];
    calls.done();
    await Promise.resolve();
    expect(gone).to.deep.equal([]);
    calls.done();
    await Promise.all(waiting);
    expect(gone).to.deep.equal(['first', 'second']);
  });

  it('are waited for again when there are some again', async () => {
    const calls = new WaitGroup();
    calls.add();
    calls.done();
    await calls.wait();
    calls.add();
    let isOver = false;
    const over = calls.wait().then(() => {
      isOver = true;
    });
    await Promise.resolve();
    expect(isOver).to.equal(false);
    calls.done();
    await over;
  });
});
