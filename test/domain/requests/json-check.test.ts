import { expect } from 'chai';
import fc from 'fast-check';
import { DomainError } from '../../../src/domain/errors.ts';
import { checkJson, maxJsonDepth } from '../../../src/domain/requests/json-check.ts';

const fieldOf = (value: unknown): string | undefined => {
  try {
    checkJson(value, 'payload');
    return undefined;
  } catch (error) {
    if (error instanceof DomainError) return error.field;
    throw error;
  }
};

const nested = (levels: number): unknown => {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = i % 2 === 0 ? [value] : { deeper: value };
  return value;
};

describe('checkJson', () => {
  it('names the position of a NUL, in values and in names', () => {
    expect(fieldOf({ a: ['x', { b: 'y\0' }] })).to.equal('payload.a[1].b');
    expect(fieldOf({ 'a\0': 1 })).to.equal('payload');
  });

  it('refuses half of a surrogate pair, and accepts a complete one', () => {
    expect(fieldOf({ a: '\ud83d' })).to.equal('payload.a');
    expect(fieldOf({ a: '\ud83d\ude00' })).to.equal(undefined);
  });

  it('refuses numbers that JSON cannot represent', () => {
    for (const number of [Number.NaN, Number.POSITIVE_INFINITY])
      expect(fieldOf({ a: number })).to.equal('payload.a');
  });

  it('refuses __proto__ as a name, at any depth', () => {
    expect(fieldOf(JSON.parse('{"a":{"__proto__":{"admin":true}}}'))).to.equal('payload.a');
    expect(fieldOf(JSON.parse('{"constructor":{"prototype":1}}'))).to.equal(undefined);
  });

  it('accepts nesting up to its bound, and names the field beyond it', () => {
    expect(fieldOf(nested(maxJsonDepth + 1))).to.equal(undefined);
    expect(fieldOf(nested(maxJsonDepth + 2))).to.equal('payload');
    expect(fieldOf(nested(100_000))).to.equal('payload');
  });

  it('accepts every JSON document that is well-formed text without NUL', () => {
    const plain = fc
      .string({ unit: 'grapheme' })
      .filter((text) => !text.includes('\0') && text !== '__proto__');
    const value = fc.jsonValue({ maxDepth: 5, stringUnit: 'grapheme' });
    fc.assert(
      fc.property(fc.dictionary(plain, value), (object) => {
        fc.pre(!JSON.stringify(object).includes('\\u0000') && !JSON.stringify(object).includes('__proto__'));
        expect(fieldOf(object)).to.equal(undefined);
      }),
    );
  });
});
