import { expect } from 'chai';
import { DomainError } from '../../../src/domain/errors.ts';
import { AcquireFiles, ReleaseFiles } from '../../../src/domain/requests/files.ts';
import { ClaimJobs, ReleaseLease, SubmitJob } from '../../../src/domain/requests/scheduler.ts';
import { instantMs, parser } from '../../../src/domain/requests/validator.ts';

const parseSubmit = parser(SubmitJob);
const parseClaim = parser(ClaimJobs);
const parseRelease = parser(ReleaseLease);
const parseAcquire = parser(AcquireFiles);
const parseFiles = parser(ReleaseFiles);
const good = { addon_id: 'visuals', job_type: 'load30', cost_units: 30 };

const refusal = (work: () => unknown): DomainError => {
  try {
    work();
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
  throw new Error('it was not refused');
};

describe('parser', () => {
  it('returns a valid command unchanged, unknown fields and nulls included', () => {
    const command = { ...good, stream: null, tags: null, colour: 'green' };
    expect(parseSubmit(command)).to.equal(command);
  });

  it('names a missing required field', () => {
    const { code, field, detail } = refusal(() => parseSubmit({ addon_id: 'a', cost_units: 1 }));
    expect({ code, field, detail }).to.deep.equal({
      code: 'invalid_request',
      field: 'job_type',
      detail: 'job_type: is required',
    });
  });

  const wrong: [string, unknown, string][] = [
    ['cost_units', 0, 'cost_units: must be >= 1, not 0'],
    ['cost_units', 1.5, 'cost_units: must be a whole number, not 1.5'],
    ['cost_units', '30', 'cost_units: must be a whole number, not "30"'],
    ['addon_id', '   ', 'addon_id: must not be blank, not "   "'],
    ['addon_id', 7, 'addon_id: must be text, not 7'],
    ['addon_id', '', 'addon_id: must not be empty'],
    ['tags', ['ok', ''], 'tags[1]: must not be empty'],
    ['priority', 'urgent', 'priority: must be one of URGENT, HIGH, NORMAL, LOW, not "urgent"'],
    ['payload', [1], 'payload: must be a JSON object, not a list'],
    ['tags', ['ok', 3], 'tags[1]: must be text, not 3'],
    ['run_at', 'tomorrow', 'run_at: must be a time such as 2025-12-28T20:15:00Z, not "tomorrow"'],
    ['unique', 'yes', 'unique: must be true or false, not "yes"'],
  ];
  for (const [name, value, detail] of wrong) {
    it(`refuses ${name} = ${JSON.stringify(value)} with a message that names it`, () => {
      const error = refusal(() => parseSubmit({ ...good, [name]: value }));
      expect(error.detail).to.equal(detail);
      expect(error.field).to.equal(detail.split(':')[0]);
    });
  }

  it('names the position of the invalid item in a batch', () => {
    const { field } = refusal(() => parseSubmit({ ...good, tags: [''] }, 'jobs[3]'));
    expect(field).to.equal('jobs[3].tags[0]');
  });

  it('reports the error of the matching alternative for a field with several types', () => {
    const release = (error: unknown) =>
      refusal(() => parseRelease({ worker_id: 'w', status: 'FAILED', error })).detail;
    expect(release(5)).to.equal('error: must be text or a JSON object, not 5');
    expect(release({ retryable: 'yes' })).to.equal('error.retryable: must be true or false, not "yes"');
  });

  it('refuses text that the database cannot store, in every field', () => {
    expect(refusal(() => parseSubmit({ ...good, addon_id: 'a\0' })).field).to.equal('addon_id');
    expect(refusal(() => parseSubmit({ ...good, whatever: { x: '\ud800' } })).field).to.equal('whatever.x');
  });

  it('reports the number of items and the maximum', () => {
    const told = (paths: string[], fences?: object) =>
      refusal(() => parseFiles({ owner_id: 'o', repository: 'r', reason: 'ENDED', paths, fences })).detail;
    const acquire = (paths: string[]) =>
      refusal(() => parseAcquire({ owner_id: 'o', repository: 'r', paths })).detail;
    const many = Array.from({ length: 10_001 }, (_, i) => `${i}`);
    expect(acquire([])).to.equal('paths: must have at least 1 item, not 0');
    expect(acquire(many)).to.equal('paths: must have at most 10000 items, not 10001');
    const fences = Object.fromEntries(many.map((path) => [path, 1]));
    expect(told(['a'], fences)).to.equal('fences: must have at most 10000 items, not 10001');
  });

  it('limits the fields of a claim', () => {
    const claim = { worker_id: 'w' };
    expect(refusal(() => parseClaim({ ...claim, limit: 1_001 })).field).to.equal('limit');
    expect(refusal(() => parseClaim({ ...claim, accept_job_types: Array(501).fill('a') })).field).to.equal(
      'accept_job_types',
    );
  });
});

describe('instantMs', () => {
  it('reads a time with any offset, and refuses an invalid one', () => {
    expect(instantMs('2025-12-28T22:15:00+02:00', 'run_at')).to.equal(Date.UTC(2025, 11, 28, 20, 15));
    expect(refusal(() => instantMs('soon', 'run_at')).field).to.equal('run_at');
  });
});
