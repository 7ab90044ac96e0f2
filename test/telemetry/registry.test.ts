import { expect } from 'chai';
import { Registry } from '../../src/telemetry/registry.ts';
import { MetricsText } from '../support/metrics-text.ts';

const read = (registry: Registry) => new MetricsText(registry.render());

describe('the registry of metrics', () => {
  it('prints counters with their labels, as a parser of Prometheus reads them', () => {
    const registry = new Registry();
    const calls = registry.counters('calls_total', 'Calls.', 'method', 'code');
    calls.of('Get', 'OK').add();
    calls.of('Get', 'OK').add(2);
    calls.of('Set', 'NOT_FOUND').add(0.5);
    const text = read(registry);
    expect(text.families).to.deep.equal([{ name: 'calls_total', help: 'Calls.', type: 'COUNTER' }]);
    expect(text.value('calls_total', { method: 'Get', code: 'OK' })).to.equal(3);
    expect(text.value('calls_total', { method: 'Set', code: 'NOT_FOUND' })).to.equal(0.5);
  });

  it('counts each value in the first bucket that fits, and buckets cumulatively', () => {
    const registry = new Registry();
    const durations = registry.histograms('took_seconds', 'Durations.', [0.1, 1, 10], 'what');
    for (const value of [0, 0.1, 0.100001, 1, 9.5, 11, 1e9]) durations.of('a').observe(value);
    const text = read(registry);
    expect(text.families).to.deep.equal([{ name: 'took_seconds', help: 'Durations.', type: 'HISTOGRAM' }]);
    const below = ['0.1', '1', '10', '+Inf'].map((le) =>
      text.value('took_seconds_bucket', { what: 'a', le }),
    );
    expect(below).to.deep.equal([2, 4, 5, 7]);
    expect(text.value('took_seconds_count', { what: 'a' })).to.equal(7);
    expect(text.value('took_seconds_sum', { what: 'a' })).to.be.closeTo(1_000_000_021.7, 0.01);
  });

  it("keeps every allowed character of a label's value", () => {
    const registry = new Registry();
    const odd = 'a "quoted" \\ path\nand a line, {braces}, é😀';
    registry.counters('odd_total', 'Odd.', 'label').of(odd).add();
    expect(read(registry).labelled('odd_total', 'label')).to.deep.equal([odd]);
  });

  it('lists the labels of every metric, with or without a series', () => {
    const registry = new Registry();
    registry.counters('a_total', 'A.', 'method', 'code');
    registry.histograms('b_seconds', 'B.', [1], 'what');
    registry.gauge('c', 'C.', () => undefined, 'state');
    registry.counting('d_total', 'D.', () => undefined, 'mode');
    registry.summary('e_seconds', 'E.', () => []);
    expect(registry.declared.map(({ name, kind, labelNames }) => [name, kind, ...labelNames])).to.deep.equal([
      ['a_total', 'counter', 'method', 'code'],
      ['b_seconds', 'histogram', 'what'],
      ['c', 'gauge', 'state'],
      ['d_total', 'counter', 'mode'],
      ['e_seconds', 'summary'],
    ]);
  });

  it('lists unused metrics by name, without a series', () => {
    const registry = new Registry();
    registry.counters('unused_total', 'Unused.', 'label').of('a');
    registry.histograms('unused_seconds', 'Unused.', [1], 'label').of('a');
    registry.gauge('unknown', 'Unknown.', () => undefined);
    const text = read(registry);
    const names = text.families.map(({ name }) => name);
    expect(names).to.deep.equal(['unused_total', 'unused_seconds', 'unknown']);
    expect(text.lines).to.deep.equal([]);
  });

  it('reads gauges when they are printed', () => {
    const registry = new Registry();
    let size = 1;
    registry.gauge('size', 'Size.', () => size);
    registry.gauge('sizes', 'Sizes.', () => [{ labels: { of: 'a' }, value: size * 10 }]);
    expect(read(registry).value('size')).to.equal(1);
    size = Number.POSITIVE_INFINITY;
    expect(registry.render()).to.include('size +Inf').and.to.include('sizes{of="a"} +Inf');
  });

  it('accepts a name once', () => {
    const registry = new Registry();
    registry.gauge('size', 'Size.', () => 1);
    expect(() => registry.counters('size', 'Size.')).to.throw('size is declared twice');
  });
});
