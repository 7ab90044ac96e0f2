import { expect } from 'chai';
import { WaitGroup } from '../../../src/lib/async/wait-group.ts';

describe('WaitGroup', () => {
  it('is done at first', async () => {
    await new WaitGroup().wait();
  });

  it('resolves all waits after the last call, and not before', async () => {
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

  it('waits again after new calls are added', async () => {
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
