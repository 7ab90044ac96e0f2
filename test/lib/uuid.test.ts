import { expect } from 'chai';
import { isUuid, newId } from '../../src/lib/uuid.ts';

describe('newId', () => {
  it('creates UUIDs of version 7 that contain the time', () => {
    const id = newId(Date.UTC(2100, 0, 1));
    expect(id).to.match(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)).to.equal(Date.UTC(2100, 0, 1));
  });

  it('rises with every call, also within a millisecond and when the clock is set back', () => {
    const now = Date.UTC(2101, 0, 1);
    const ids = Array.from({ length: 20_000 }, (_, i) => newId(i < 10_000 ? now : now - 5_000));
    for (let i = 1; i < ids.length; i++) expect((ids[i] as string) > (ids[i - 1] as string)).to.equal(true);
    expect(new Set(ids).size).to.equal(ids.length);
  });

  it('returns to the clock after that was far ahead', () => {
    newId(Date.UTC(2102, 0, 1));
    const now = Date.UTC(2101, 0, 1);
    expect(Number.parseInt(newId(now).replaceAll('-', '').slice(0, 12), 16)).to.equal(now);
  });
});

describe('isUuid', () => {
  it('distinguishes a UUID from everything else', () => {
    expect(isUuid(newId())).to.equal(true);
    for (const text of ['', 'nope', `${newId()} `, '0'.repeat(36)])
      expect(isUuid(text), text).to.equal(false);
  });
});
