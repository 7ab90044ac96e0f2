import { expect } from 'chai';
import fc from 'fast-check';
import { DomainError } from '../../../src/domain/errors.ts';
import {
  type AskedFile,
  type ContentionState,
  contentionStates,
  contentionTransitions,
  decideContention,
  isOpen,
  phaseOf,
  retryMs,
  unusedMs,
} from '../../../src/domain/files/contention-policy.ts';
import { livenessOf } from '../../../src/domain/files/file-owners.ts';
import { fileIdOf, filesNamed, normalPath } from '../../../src/domain/files/file-paths.ts';

const deniedAtMs = 1_000_000;
const retryAtMs = deniedAtMs + retryMs;

const file = (fileId: string, more: Partial<AskedFile> = {}): AskedFile => ({
  fileId,
  isBlocked: false,
  contention: undefined,
  ...more,
});
const withContention = (
  fileId: string,
  isBlocked: boolean,
  state: ContentionState = 'CONTENDED',
  at = retryAtMs,
): AskedFile =>
  file(fileId, {
    isBlocked,
    contention: { contentionId: `c-${fileId}`, state, retryAtMs: at, isInstructed: false },
  });

describe('contentions', () => {
  it('holds a contention for exactly three minutes, and lets it lapse ten minutes later', () => {
    const at = (ms: number) => phaseOf({ state: 'CONTENDED', retryAtMs }, ms);
    expect(retryMs).to.equal(180_000);
    expect(at(retryAtMs - 1)).to.equal('waiting');
    expect(at(retryAtMs)).to.equal('due');
    expect(at(retryAtMs + unusedMs - 1)).to.equal('due');
    expect(at(retryAtMs + unusedMs)).to.equal('lapsed');
    expect(phaseOf({ state: 'HALTED', retryAtMs }, retryAtMs + 10 * unusedMs)).to.equal('halted');
  });

  it('keeps closed contentions closed, and abandons only halted ones', () => {
    for (const { from } of Object.values(contentionTransitions))
      for (const state of from) expect(isOpen(state), state).to.equal(true);
    expect(contentionTransitions.abandon.from).to.deep.equal(['HALTED']);
    const reached = new Set(Object.values(contentionTransitions).map(({ to }) => to));
    expect([...reached]).to.have.members([...contentionStates]);
  });

  it('decides a halted contention before a waiting one, and a waiting one before all others', () => {
    const now = retryAtMs - 1;
    const halted = withContention('h', false, 'HALTED');
    const waiting = withContention('w', false);
    const longer = withContention('l', true, 'CONTENDED', retryAtMs + 5);
    expect(decideContention([waiting, halted], now)).to.deep.equal({
      kind: 'answer',
      contentionId: 'c-h',
      state: 'HALTED',
    });
    expect(decideContention([file('b', { isBlocked: true }), waiting, longer], now)).to.deep.equal({
      kind: 'answer',
      contentionId: 'c-l',
      state: 'CONTENDED',
    });
  });

  it('halts a due contention that is still blocked, and denies if only others are blocked', () => {
    const blocked = file('b', { isBlocked: true });
    expect(decideContention([blocked, withContention('d', true)], retryAtMs)).to.deep.equal({
      kind: 'halt',
      fileIds: ['d'],
    });
    expect(decideContention([blocked, withContention('d', false)], retryAtMs)).to.deep.equal({
      kind: 'deny',
      fileIds: ['b'],
    });
    expect(decideContention([withContention('x', true)], retryAtMs + unusedMs)).to.deep.equal({
      kind: 'deny',
      fileIds: ['x'],
    });
    expect(decideContention([file('f'), withContention('d', false)], retryAtMs)).to.deep.equal({
      kind: 'grant',
    });
  });
});

describe('liveness of owners', () => {
  it('keeps owners alive by heartbeats, and releases the files of stopped, idle owners', () => {
    const owner = { state: 'ALIVE', expiresAtMs: 60, idleAtMs: null } as const;
    expect(livenessOf(owner, 59)).to.equal('alive');
    expect(livenessOf(owner, 60)).to.equal('dead');
    expect(livenessOf({ ...owner, idleAtMs: 30 }, 29)).to.equal('alive');
    expect(livenessOf({ ...owner, idleAtMs: 30 }, 30)).to.equal('idle');
    expect(livenessOf({ ...owner, idleAtMs: 30 }, 60), 'dead comes first').to.equal('dead');
    for (const state of ['NEW', 'ENDED', 'DEAD'] as const)
      expect(livenessOf({ ...owner, state }, 0)).to.equal('ended');
  });
});

describe('paths of files', () => {
  it('normalizes a path to one spelling, which it then keeps', () => {
    const segment = fc.constantFrom('a', 'b', '..', '.', '', ' c', 'd.ts');
    fc.assert(
      fc.property(fc.array(segment, { minLength: 1, maxLength: 8 }), (segments) => {
        const path = segments.join('/');
        let normal: string;
        try {
          normal = normalPath(path, 'paths[0]');
        } catch (error) {
          expect(error).to.be.instanceOf(DomainError).and.include({ field: 'paths[0]' });
          return;
        }
        expect(normalPath(normal, 'paths[0]')).to.equal(normal);
        expect(normal.split('/')).not.to.include.oneOf(['', '.', '..']);
        expect(normalPath(`./${path}//`, 'paths[0]')).to.equal(normal);
      }),
    );
  });

  it('distinguishes paths and repositories in the key of a file', () => {
    expect(fileIdOf('a', 'b/c')).not.to.equal(fileIdOf('a/b', 'c'));
    expect(fileIdOf('r', 'p')).to.equal(filesNamed('r', ['./p'])[0]?.fileId);
  });
});
