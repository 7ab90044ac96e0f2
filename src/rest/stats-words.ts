/** Figures in the queue contract's words. */
import type { Static } from 'typebox';
import type { Capacity } from '../domain/lease.ts';
import { count, entity, whole } from './word-types.ts';

export const Units = entity('Capacity', 'Units of capacity, and what of them is taken.', {
  total: count('All units there are.'),
  busy_rating: count('How busy the machines are with other things, from 0 to 10.'),
  usable: count('What the busy rating leaves of them.'),
  used: count('What active leases take.'),
  available: whole('What is left. Below zero where less is usable than is used.'),
  reserved: count('What claimed jobs would take.'),
});

export const units = (capacity: Capacity): Static<typeof Units> => ({
  total: capacity.total,
  busy_rating: capacity.busyRating,
  usable: capacity.usable,
  used: capacity.used,
  available: capacity.available,
  reserved: capacity.reserved,
});
