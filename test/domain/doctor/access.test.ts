import { expect } from 'chai';
import { checkAccess, nodeFinding } from '../../../src/domain/doctor/access.ts';
import type { AccessFacts, KeyFacts } from '../../../src/domain/doctor/facts.ts';

const dayMs = 86_400_000;
const nowMs = 1_000 * dayMs;

const sound: AccessFacts = {
  posture: { isReachable: true, auth: ['keys'], hasTls: true },
  certificate: { expiresAtMs: nowMs + 15 * dayMs, isFailing: false },
  usesKeys: true,
};
const admin: KeyFacts = {
  name: 'ops',
  roles: ['admin'],
  createdAtMs: nowMs - 200 * dayMs,
  expiresAtMs: null,
  lastUsedAtMs: nowMs - 90 * dayMs,
};
const key: KeyFacts = { ...admin, name: 'w', roles: ['worker'], expiresAtMs: nowMs + 15 * dayMs };

const wrong = (more: Partial<AccessFacts>, keys: readonly KeyFacts[] | null = [admin, key]): string[] =>
  checkAccess({ ...sound, ...more }, keys, nowMs)
    .filter(({ level }) => level !== 'OK')
    .map(({ level, code }) => `${level} ${code}`);

describe('the diagnosis of access', () => {
  it('finds nothing wrong with what is secured', () => {
    expect(wrong({})).to.deep.equal([]);
    for (const { text, advice } of checkAccess(sound, [admin, key], nowMs)) {
      expect(text).not.to.match(/undefined|null|NaN/);
      expect(advice).to.equal(null);
    }
  });

  it('warns of a server that other machines reach without authentication or TLS', () => {
    const posture = (isReachable: boolean, auth: string[], hasTls: boolean) =>
      wrong({ posture: { isReachable, auth, hasTls } });
    expect(posture(true, [], true)).to.deep.equal(['WARN posture']);
    expect(posture(true, ['keys'], false)).to.deep.equal(['WARN posture']);
    expect(posture(false, [], false)).to.deep.equal([]);
    const [found] = checkAccess(
      { ...sound, posture: { isReachable: true, auth: [], hasTls: false } },
      [],
      nowMs,
    );
    expect(found?.text).to.include('every caller may do everything').and.include('clear text');
  });

  it('warns of a certificate that ends within 14 days, has ended, or cannot be replaced', () => {
    const certificate = (expiresAtMs: number, isFailing = false) =>
      wrong({ certificate: { expiresAtMs, isFailing } });
    expect(certificate(nowMs + 14 * dayMs)).to.deep.equal(['WARN certificate']);
    expect(certificate(nowMs)).to.deep.equal(['PROBLEM certificate']);
    expect(certificate(nowMs + 90 * dayMs, true)).to.deep.equal(['PROBLEM certificate']);
    expect(wrong({ certificate: null })).to.deep.equal([]);
  });

  it('warns of keys that will expire, of unused ones, and of none for administrators', () => {
    expect(wrong({}, [admin, { ...key, expiresAtMs: nowMs + 14 * dayMs }])).to.deep.equal([
      'WARN keys_expiring',
    ]);
    const old = nowMs - 91 * dayMs;
    expect(wrong({}, [admin, { ...key, lastUsedAtMs: old }])).to.deep.equal(['WARN keys_unused']);
    expect(wrong({}, [admin, { ...key, lastUsedAtMs: null, createdAtMs: nowMs }])).to.deep.equal([]);
    expect(wrong({}, [admin, { ...key, lastUsedAtMs: null }])).to.deep.equal(['WARN keys_unused']);
    expect(wrong({}, [key])).to.deep.equal(['WARN admin_keys']);
    expect(wrong({}, null)).to.deep.equal(['WARN keys']);
    expect(wrong({ usesKeys: false }, [])).to.deep.equal([]);
  });

  it('lists at most five names, those that expire first at the beginning', () => {
    const many = Array.from({ length: 8 }, (_, i) => ({
      ...key,
      name: `k${i}`,
      expiresAtMs: nowMs + (9 - i) * dayMs,
    }));
    const found = checkAccess(sound, [admin, ...many], nowMs).find(({ code }) => code === 'keys_expiring');
    expect(found?.text).to.equal('8 keys will expire within 14 days: k7, k6, k5, k4, k3 and 3 more');
  });

  it('warns of a Node that lacks fixes', () => {
    const levels = ['22.18.0', '22.23.0', '23.9.0', '24.16.9', '24.17.0', '25.1.0', '26.0.0'].map(
      (version) => nodeFinding(version).level,
    );
    expect(levels).to.deep.equal(['WARN', 'OK', 'WARN', 'WARN', 'OK', 'WARN', 'OK']);
  });
});
