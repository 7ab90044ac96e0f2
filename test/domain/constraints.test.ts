import { expect } from 'chai';
import { needsOf, offerOf, suits } from '../../src/domain/constraints.ts';

const suited = (constraints: Record<string, boolean>, capabilities: Record<string, boolean>) =>
  suits(needsOf(constraints), offerOf(capabilities));

describe('constraints and capabilities', () => {
  it('need what is required to be said to be available: absent means not available', () => {
    expect(suited({ gpu_required: true }, {})).to.equal(false);
    expect(suited({ gpu_required: true }, { gpu_available: false })).to.equal(false);
    expect(suited({ gpu_required: true }, { gpu_available: true })).to.equal(true);
    expect(suited({ gpu_required: false }, {})).to.equal(true);
  });

  it('let a worker refuse what is heavy, and only by saying false', () => {
    expect(suited({ cpu_heavy: true }, {})).to.equal(true);
    expect(suited({ cpu_heavy: true }, { cpu_heavy: true })).to.equal(true);
    expect(suited({ cpu_heavy: true }, { cpu_heavy: false })).to.equal(false);
    expect(suited({ cpu_heavy: false }, { cpu_heavy: false })).to.equal(true);
  });

  it('ignore what they do not know, and refuse a flag that is neither true nor false', () => {
    expect(suited({ colour: 'green' } as never, {})).to.equal(true);
    expect(() => needsOf({ gpu_required: 'yes' })).to.throw('constraints.gpu_required');
    expect(() => offerOf({ gpu_available: 1 })).to.throw('constraints_capabilities.gpu_available');
  });
});
