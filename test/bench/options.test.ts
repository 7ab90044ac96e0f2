import { expect } from 'chai';
import { engines } from '../support/engines.ts';
import { readOptions, UsageError } from './options.ts';
import { sizesFor } from './sizes.ts';

const read = (...args: string[]) => readOptions(args, ['submit', 'drain']);

describe('the options of the benchmark', () => {
  it('measure everything, and write the figures down, where none is given', () => {
    const { only, engines: chosen, json, smoke, quick, long } = read();
    expect({ only, smoke, quick, long }).to.deep.equal({
      only: undefined,
      smoke: false,
      quick: false,
      long: false,
    });
    expect(chosen).to.deep.equal(engines);
    expect(json).to.equal('leasehold-bench.json');
  });

  it('write nothing in a smoke run, unless they say where', () => {
    expect(read('--smoke').json).to.equal(undefined);
    expect(read('--smoke', '--json', 'there.json').json).to.equal('there.json');
  });

  it('keep a quick run to one engine, unless they name another', () => {
    expect(read('--quick').engines).to.have.length(1);
    expect(read('--quick', '--engine', 'embedded').engines).to.deep.equal(['embedded']);
  });

  it('refuse a scenario that there is not', () => {
    expect(() => read('--only', 'submit,dream')).to.throw(UsageError, /dream/);
  });
});

describe('the sizes of the benchmark', () => {
  const sizesOf = (...args: string[]) => sizesFor(read(...args));

  it('judge every run but a smoke run', () => {
    expect([sizesOf(), sizesOf('--quick'), sizesOf('--long')].map(({ judged }) => judged)).to.deep.equal([
      true,
      true,
      true,
    ]);
    expect(sizesOf('--smoke').judged).to.equal(false);
  });

  it('are the full ones only where they are asked for', () => {
    expect(sizesOf('--long').oldFinished).to.equal(10_000_000);
    expect(sizesOf('--long').oldMs).to.equal(600_000);
    expect(sizesOf('--long').halfLoadMs).to.equal(3_600_000);
    expect(sizesOf('--long', '--smoke').oldFinished).to.be.below(10_000);
    expect(sizesOf().oldFinished).to.be.below(10_000_000);
  });

  it('play one round in a quick run, or as many as are asked for', () => {
    expect(sizesOf('--quick').repeats).to.equal(1);
    expect(sizesOf('--quick', '--repeats', '4').repeats).to.equal(4);
  });
});
