import Type from 'typebox';
import { auditOutcomes } from '../access/audit.ts';
import { roles } from '../access/roles.ts';
import type { scopeKinds } from '../access/scopes.ts';
import { limits } from '../limits.ts';
import { cursorOf, name, numberCursor, optional, pageSize } from './scheduler.ts';

/** The most patterns of one kind. */
const patternsMax = 100;

const patterns = (description: string) =>
  Type.Array(
    Type.String({
      minLength: 1,
      maxLength: limits.nameChars,
      pattern: '^[^*]*\\*?$',
      description: 'An exact name, or a prefix that ends in `*`.',
    }),
    { maxItems: patternsMax, description },
  );

const about: Record<(typeof scopeKinds)[number], string> = {
  addon_ids: 'The applications or tenants of jobs.',
  streams: 'The streams of jobs. A job without a stream is in every scope of streams.',
  job_types: 'The types of jobs.',
  repositories: 'The repositories of files.',
};

export const ScopesSchema = Type.Object(
  {
    addon_ids: optional(patterns(about.addon_ids)),
    streams: optional(patterns(about.streams)),
    job_types: optional(patterns(about.job_types)),
    repositories: optional(patterns(about.repositories)),
  },
  { description: 'What the key reaches. `*` alone is everything, and an absent list nothing.' },
);

const most = (maximum: number, description: string) =>
  optional(Type.Integer({ minimum: 0, maximum, description }));

export const LimitsSchema = Type.Object(
  {
    submit_per_s: most(1_000_000_000, 'Jobs a second that it may submit, cancel and retry.'),
    read_per_s: most(1_000_000_000, 'Calls and rows a second that it may read.'),
    burst_s: optional(
      Type.Integer({ minimum: 1, maximum: 3_600, description: 'Seconds of its rate in one burst.' }),
    ),
    max_streams: most(1_000_000, 'Streams that it may keep open.'),
  },
  { description: "Limits on each server, in place of the server's settings; 0 is no limit." },
);

export const CreateKey = Type.Object({
  name: Type.String({
    minLength: 1,
    maxLength: 100,
    pattern: '^[\\w.-]+$',
    description: 'What people call the key: letters, digits, `.`, `_` and `-`.',
  }),
  roles: Type.Array(Type.Enum([...roles]), {
    minItems: 1,
    maxItems: roles.length,
    description: 'What the key may do.',
  }),
  scopes: optional(ScopesSchema),
  worker_ids: optional(
    patterns(
      'The workers and file owners that the key may act as; by default `<name>`, `<name>-*` and `<name>/*`.',
    ),
  ),
  sees_payloads: optional(Type.Boolean({ description: 'An observer sees payloads, results and errors.' })),
  limits: optional(LimitsSchema),
  note: optional(Type.String({ maxLength: limits.noteChars, description: 'For people.' })),
  expires_in_days: optional(
    Type.Integer({ minimum: 1, maximum: 3_650, description: 'When the key expires; 90 days by default.' }),
  ),
  never_expires: optional(Type.Boolean({ description: 'The key does not expire.' })),
});

export const RotateKey = Type.Object({
  overlap_s: optional(
    Type.Integer({
      minimum: 0,
      maximum: 30 * 86_400,
      description: 'For how many seconds the old secret counts too; a day by default.',
    }),
  ),
});

export const RevokeKey = Type.Object({});

export const BeginSession = Type.Object({
  key: Type.String({ minLength: 1, maxLength: 200, description: 'The text of a key.' }),
});

export const ListAudit = Type.Object({
  since: optional(
    Type.String({ format: 'date-time', maxLength: 40, description: 'Only events since then.' }),
  ),
  until: optional(
    Type.String({ format: 'date-time', maxLength: 40, description: 'Only events before then.' }),
  ),
  principal_id: optional(name('Only acts of this principal.')),
  action: optional(name('Only this act.')),
  outcome: optional(Type.Enum([...auditOutcomes], { description: 'Only acts with this outcome.' })),
  limit: optional(pageSize(200, 50, 'The most events of a page.')),
  cursor: optional(cursorOf(20, numberCursor)),
});

export type CreateKey = Type.Static<typeof CreateKey>;
export type ListAudit = Type.Static<typeof ListAudit>;
