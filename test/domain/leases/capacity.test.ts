import { expect } from 'chai';
import fc from 'fast-check';
import {
  capacityExceeded,
  capacityOf,
  noCapacity,
  noJobs,
  usableUnits,
} from '../../../src/domain/leases/capacity.ts';

const total = fc.integer({ min: 0, max: 1_000_000_000 });
const busyRating = fc.integer({ min: 0, max: 10 });

describe('capacity', () => {
  it('lowers the usable units by a tenth for each point of the busy rating, rounded down', () => {
    const usable = [0, 1, 5, 8, 9, 10].map((busy) => usableUnits(50, busy));
    expect(usable).to.deep.equal([50, 45, 25, 10, 5, 0]);
    expect(usableUnits(7, 5)).to.equal(3);
    expect(usableUnits(9, 9)).to.equal(0);
    expect(usableUnits(0, 0)).to.equal(0);
  });

  it('never makes more units usable than the total, nor more for a higher busy rating', () => {
    fc.assert(
      fc.property(total, busyRating, (units, busy) => {
        const usable = usableUnits(units, busy);
        expect(Number.isInteger(usable)).to.equal(true);
        expect(usable).to.be.within(0, units);
        if (busy < 10) expect(usableUnits(units, busy + 1)).to.be.at.most(usable);
        // Rounded down, by less than one unit.
        expect((units * (10 - busy)) / 10 - usable).to.be.within(0, 0.999);
      }),
    );
  });

  it('counts usable, unused units as available, and does not subtract reserved ones', () => {
    expect(capacityOf({ total: 100, busyRating: 3, used: 60, reserved: 25 })).to.deep.equal({
      total: 100,
      busyRating: 3,
      usable: 70,
      used: 60,
      available: 10,
      reserved: 25,
    });
  });

  it('reports the shortage by running leases after the capacity was lowered', () => {
    expect(capacityOf({ total: 10, busyRating: 8, used: 10, reserved: 0 }).available).to.equal(-8);
  });

  it("denies in the contracts' own sentences", () => {
    const busy = capacityOf({ total: 50, busyRating: 8, used: 10, reserved: 0 });
    expect(noCapacity(busy)).to.equal('No capacity (busy=8, usable=10, leased=10)');
    const tight = capacityOf({ total: 70, busyRating: 0, used: 60, reserved: 0 });
    expect(capacityExceeded(tight, 30)).to.equal('Capacity exceeded: used=60, requested=30, capacity=70');
    expect(noJobs).to.equal('No jobs available');
  });
});
