import { expect } from 'chai';
import { needsOf, offerOf } from '../../../src/domain/jobs/constraints.ts';

describe('constraints and capabilities', () => {
  it('reads requirements and heavy flags from the constraints that are true', () => {
    const constraints = { gpu_required: true, tpu_required: false, cpu_heavy: true, disk_heavy: false };
    expect(needsOf(constraints)).to.deep.equal({ requires: ['gpu'], heavy: ['cpu'] });
  });

  it('reads offered capabilities, and refuses heavy jobs only for a flag that is false', () => {
    const capabilities = { gpu_available: true, tpu_available: false, cpu_heavy: false, disk_heavy: true };
    expect(offerOf(capabilities)).to.deep.equal({ available: ['gpu'], refused: ['cpu'] });
  });

  it('treats constraints in any order as equal', () => {
    const one = needsOf({ b_required: true, a_required: true });
    expect(one).to.deep.equal(needsOf({ a_required: true, b_required: true }));
  });

  it('refuses an unknown key, and names the rule in the error', () => {
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

  it('refuses a key without a name before its suffix', () => {
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

  it('refuses a flag that is neither true nor false', () => {
    expect(() => needsOf({ gpu_required: 'yes' })).to.throw('constraints.gpu_required');
    expect(() => offerOf({ gpu_available: 1 })).to.throw('constraints_capabilities.gpu_available');
  });
});
