import { SetCapacity } from '../domain/commands.ts';
import { answer, ask, operations } from './about.ts';
import { Units } from './stats-words.ts';

const capacity = { total: 100, busy_rating: 3, usable: 70, used: 60, available: 10, reserved: 0 };

/** What the queue contract's Stats API says of itself. */
export const statsAbout = operations('Queue: stats', {
  getCapacity: {
    summary: 'Read the capacity',
    answers: { 200: answer('Units, and what of them is taken.', Units, capacity) },
    errors: [],
  },
  setCapacity: {
    summary: 'Change the capacity',
    details: 'The total, the busy rating, or both. What is stored then wins over the setting.',
    body: ask(SetCapacity, { total: 100, busy_rating: 3 }, { busy_rating: 0 }),
    answers: { 200: answer('Units, and what of them is taken.', Units, capacity) },
    errors: [],
  },
});
