import { expect } from 'chai';
import { hashOf, newKeyId, newKeyText, parseKey } from '../../../src/domain/access/key-text.ts';

describe('the text of a key', () => {
  it('is read back, and has the form that secret scanners look for', () => {
    for (let i = 0; i < 200; i++) {
      const keyId = newKeyId();
      const { text, hash } = newKeyText(keyId);
      expect(text).to.match(/^lhk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/);
      const parsed = parseKey(text);
      expect(parsed?.keyId).to.equal(keyId);
      expect(hashOf(parsed?.secret ?? '')).to.deep.equal(hash);
    }
  });

  it('is refused with any one character changed', () => {
    const { text } = newKeyText(newKeyId());
    for (let i = 0; i < text.length; i++) {
      const other = text[i] === 'x' ? 'y' : 'x';
      expect(parseKey(text.slice(0, i) + other + text.slice(i + 1)), `at ${i}`).to.equal(undefined);
    }
  });

  it('never repeats a secret', () => {
    const texts = new Set(Array.from({ length: 1_000 }, () => newKeyText('aaaaaaaaaaaa').text));
    expect(texts.size).to.equal(1_000);
  });
});
