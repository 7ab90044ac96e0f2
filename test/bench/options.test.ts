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

  it('take 0.97 for the bound of a ratio to another tree, unless they name one', () => {
    expect(read('--against', 'there')).to.include({ against: 'there', bound: 0.97 });
    expect(read('--against', 'there', '--bound', '1.02').bound).to.equal(1.02);
    for (const bound of ['0', '-1', 'much', '1e3', ''])
      expect(() => read('--against', 'there', `--bound=${bound}`), bound).to.throw(UsageError, /--bound/);
    expect(() => read('--bound', '0.9')).to.throw(UsageError, /--against/);
    expect(() => read('--keys')).to.throw(UsageError, /--against/);
  });

  it('refuse against another tree what cannot be compared with one', () => {
    const against = (...args: string[]) =>
      readOptions(['--against', 'there', ...args], ['submit', 'drain'], ['submit']);
    expect(against('--only', 'submit').only).to.deep.equal(['submit']);
    expect(() => against('--only', 'drain')).to.throw(UsageError, /drain/);
    expect(() => against('--quick')).to.throw(UsageError, /--quick/);
    expect(() => against('--long')).to.throw(UsageError, /--long/);
    expect(() => against('--engine', 'embedded')).to.throw(UsageError, /PostgreSQL/);
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

  it('play eleven pairs against another tree, and in a smoke run the fewest that have an interval', () => {
    expect(sizesOf('--against', 'there').repeats).to.equal(11);
    expect(sizesOf('--against', 'there', '--repeats', '21').repeats).to.equal(21);
    expect(sizesOf('--against', 'there', '--smoke').repeats).to.equal(6);
    expect(sizesOf('--against', 'there', '--smoke').roundMs).to.be.below(1_000);
  });
});
