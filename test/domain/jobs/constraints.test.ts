import { expect } from 'chai';
import { needsOf, offerOf } from '../../../src/domain/jobs/constraints.ts';

describe('constraints and capabilities', () => {
  it('need what is required, and burden with what is heavy, where the flag is true', () => {
    const constraints = { gpu_required: true, tpu_required: false, cpu_heavy: true, disk_heavy: false };
    expect(needsOf(constraints)).to.deep.equal({ requires: ['gpu'], heavy: ['cpu'] });
  });

  it('offer what is said to be available, and refuse what is heavy only where that is said to be false', () => {
    const capabilities = { gpu_available: true, tpu_available: false, cpu_heavy: false, disk_heavy: true };
    expect(offerOf(capabilities)).to.deep.equal({ available: ['gpu'], refused: ['cpu'] });
  });

  it('are the same whatever their order', () => {
    const one = needsOf({ b_required: true, a_required: true });
    expect(one).to.deep.equal(needsOf({ a_required: true, b_required: true }));
  });

  it('are refused by a key that means nothing, and the error names the rule', () => {
    const constraints = 'a key must end in _required or _heavy';
    for (const key of ['gpu', 'colour', 'gpu_available', 'gpu_require', '', 'x'.repeat(5_000)]) {
      expect(() => needsOf({ [key]: true }), key)
        .to.throw(constraints)
        .and.to.have.property('field')
        .with.lengthOf.below(100);
    }
    expect(() => needsOf({ gpu: true }, 'jobs[3].constraints')).to.throw(
      'jobs[3].constraints.gpu: is not known',
    );
    const capabilities = 'a key must end in _available or _heavy';
    for (const key of ['gpu', 'gpu_required', ''])
      expect(() => offerOf({ [key]: true })).to.throw(capabilities);
  });

  it('are refused by a key that has no name before its ending', () => {
    for (const key of ['_required', '_heavy', ' _required', '\n_heavy']) {
      expect(() => needsOf({ [key]: true }), JSON.stringify(key)).to.throw('_heavy, after a name');
    }
    for (const key of ['_available', '_heavy', '\t_available']) {
      expect(() => offerOf({ [key]: true }), JSON.stringify(key)).to.throw('_heavy, after a name');
    }
    expect(needsOf({ x_required: true, _required_heavy: true })).to.deep.equal({
      requires: ['x'],
      heavy: ['_required'],
    });
  });

  it('refuse a flag that is neither true nor false', () => {
    expect(() => needsOf({ gpu_required: 'yes' })).to.throw('constraints.gpu_required');
    expect(() => offerOf({ gpu_available: 1 })).to.throw('constraints_capabilities.gpu_available');
  });
});
