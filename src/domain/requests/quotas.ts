import Type from 'typebox';
import { limits } from '../limits.ts';
import { name, optional } from './scheduler.ts';

const most = (maximum: number, description: string) =>
  optional(Type.Integer({ minimum: 0, maximum, description }));

export const SetQuota = Type.Object({
  addon_id: name('The tenant: the application that submits the jobs.'),
  max_units: most(limits.costUnits, 'Units of its active leases and claimed jobs; no limit where absent.'),
  max_queued: most(limits.costUnits, 'Jobs that wait; no limit where absent.'),
  max_payload_bytes: most(limits.jobBytes, 'Bytes of the payload of one job; no limit where absent.'),
});

export type SetQuota = Type.Static<typeof SetQuota>;
