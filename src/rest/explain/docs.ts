import { answer, operations } from '../openapi/operation.ts';
import { ExplanationBody } from './schemas.ts';

const answers = { 200: answer('The job, the reasons, and the story in order.', ExplanationBody) };

/** Documentation of the explain routes. */
export const explainAbout = operations('Queue: jobs', {
  explainJob: {
    summary: 'Explain the state of a job',
    details: 'Why it waits, runs or has ended, what would let it start, and what happened to it, in order.',
    answers,
    errors: ['job_not_found'],
  },
  explainLease: {
    tag: 'Queue: leases',
    summary: 'Explain the state of a lease',
    details: 'How it is, or how it ended and why, with the part of its job’s story that it is about.',
    answers,
    errors: ['lease_not_found'],
  },
});
