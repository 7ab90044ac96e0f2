import Type, { type Static } from 'typebox';
import type { Holder } from '../access/holder.ts';
import { invalid } from '../errors.ts';
import {
  type FileName,
  type FileRelease,
  instructions,
  type OwnerProfile,
  releaseReasons,
} from '../files/file-lease.ts';
import { fileIdOf, filesNamed, normalPath } from '../files/file-paths.ts';
import { limits } from '../limits.ts';
import { cursorOf, name, numberCursor, OperatorRequest, optional, uuidCursor } from './scheduler.ts';

/** Requests for file leases. `domain/files/file-paths.ts` checks the paths and names the one at fault. */

/** In a release, stands for all repositories. No repository has that name. */
export const everyRepository = '*';

const repository = (about: object = {}) =>
  Type.String({
    minLength: 1,
    maxLength: limits.repositoryChars,
    pattern: '\\S',
    description: 'The repository, as its users agree to call it.',
    ...about,
  });
const page = {
  limit: optional(
    Type.Integer({
      minimum: 1,
      maximum: limits.filePageRows,
      default: limits.filePageRowsDefault,
      description: 'How many at the most.',
    }),
  ),
};
/** The minimum that a path must satisfy, for the API's description; `normalPath` checks the rest. */
const path = () => Type.String({ described: { minLength: 1, pattern: '[^\\s/.]' } });

export const FileOwnerProfile = Type.Object(
  {
    agent: optional(Type.String({ maxLength: limits.nameChars, description: 'What kind of agent it is.' })),
    host: optional(Type.String({ maxLength: limits.nameChars, description: 'The machine it runs on.' })),
    pid: optional(Type.Integer({ minimum: 0, maximum: 2_147_483_647, description: 'Its process there.' })),
    branch: optional(Type.String({ maxLength: limits.repositoryChars, description: 'What it works on.' })),
    parent_owner_id: optional(
      name('The owner that this one is a sub-agent of. What the parent holds, the sub-agent may borrow.'),
    ),
  },
  { description: 'Who it is, in its own words.' },
);

export const AcquireFiles = Type.Object({
  owner_id: name('Who asks, and holds what is granted.'),
  caller_id: optional(
    name(
      'Who is kept waiting and halted, where that is not the owner: the stable name of a caller that takes a new owner each time.',
    ),
  ),
  repository: repository({ described: { not: { const: everyRepository } } }),
  paths: Type.Array(path(), {
    minItems: 1,
    maxItems: limits.filesPerRequest,
    description: "The files, relative to the repository's root.",
  }),
  owner: optional(FileOwnerProfile),
});
export type AcquireFiles = Static<typeof AcquireFiles>;

export const OwnerReport = Type.Object({ owner_id: name('Whose word it is.') });
export type OwnerReport = Static<typeof OwnerReport>;

export const ReleaseFiles = Type.Object({
  owner_id: name('Who holds them.'),
  repository: Type.String({
    minLength: 1,
    maxLength: limits.repositoryChars,
    pattern: '\\S',
    description: 'The repository whose files are given back; `*` means the files of all repositories.',
  }),
  // An empty list would mean all files: a client that found nothing to release would lose everything.
  paths: optional(
    Type.Array(path(), {
      minItems: 1,
      maxItems: limits.filesPerRequest,
      description: 'Only these files; all files where it is absent.',
    }),
  ),
  fences: optional(
    Type.Record(
      Type.String(),
      Type.Union([
        Type.Integer({ minimum: 0 }),
        Type.String({ maxLength: 20, described: { pattern: '^[0-9]{1,18}$' } }),
      ]),
      {
        maxProperties: limits.filesPerRequest,
        description: 'The fences of files, by their paths.',
      },
    ),
  ),
  reason: Type.Enum([...releaseReasons], { description: 'Why.' }),
});
export type ReleaseFiles = Static<typeof ReleaseFiles>;

export const ListFileLeases = Type.Object({
  repository: optional(repository()),
  owner_id: optional(name('Only leases of this owner.')),
  ...page,
  cursor: optional(cursorOf(100, numberCursor)),
});
export type ListFileLeases = Static<typeof ListFileLeases>;

export const ListBlockers = Type.Object({
  repository: optional(repository()),
  owner_id: optional(name('Only what this owner waits for.')),
  state: optional(Type.Enum(['CONTENDED', 'HALTED'], { description: 'Only what stands so.' })),
  ...page,
  cursor: optional(cursorOf(100, uuidCursor)),
});
export type ListBlockers = Static<typeof ListBlockers>;

export const InstructBlocker = Type.Object({
  instruction: Type.Enum([...instructions], { description: 'What is decided.' }),
  ...OperatorRequest.properties,
});
export type InstructBlocker = Static<typeof InstructBlocker>;

export const WatchFiles = Type.Object({
  repository: optional(repository()),
  owner_id: optional(name('Only what happens to this owner.')),
  after_cursor: optional(Type.String({ maxLength: 100, description: 'Go on after this one.' })),
});
export type WatchFiles = Static<typeof WatchFiles>;

/** A validated request for files. */
export interface FileRequest {
  ownerId: string;
  /** The caller's holder; the API layers leave it to the engine. */
  holder: Holder;
  /** The owner whose contentions and halts apply: the owner itself, unless the request names a caller. */
  callerId: string;
  profile: OwnerProfile;
  repository: string;
  files: readonly FileName[];
}

export function fileRequestOf(command: AcquireFiles): FileRequest {
  const { owner_id, caller_id, repository, paths, owner } = command;
  // HTTP clients remove these two from the path `/owners/{owner_id}/…`, however they are encoded.
  if (owner_id === '.' || owner_id === '..') throw invalid('owner_id', 'must not be . or ..');
  if (repository === everyRepository) throw invalid('repository', 'must not be *, which means all of them');
  if (owner?.parent_owner_id === owner_id)
    throw invalid('owner.parent_owner_id', 'must not be the owner itself');
  return {
    ownerId: owner_id,
    holder: null,
    callerId: caller_id ?? owner_id,
    profile: {
      agent: owner?.agent ?? null,
      host: owner?.host ?? null,
      pid: owner?.pid ?? null,
      branch: owner?.branch ?? null,
      parentOwnerId: owner?.parent_owner_id ?? null,
    },
    repository,
    files: filesNamed(repository, paths),
  };
}

/** A validated release. It covers the files of `paths`, or else those of `fences`, or else all. */
export function fileReleaseOf(command: ReleaseFiles): FileRelease {
  const { owner_id: ownerId, reason } = command;
  const paths = command.paths ?? [];
  const given = Object.entries(command.fences ?? {});
  const { repository } = command;
  const isEvery = repository === everyRepository;
  if (paths.length === 0 && given.length === 0)
    return { ownerId, repository: isEvery ? null : repository, files: null, reason };
  if (isEvery) throw invalid('repository', 'must be one repository where files are named, not *');
  const fences = new Map<string, string>();
  for (const [path, fence] of given) {
    const field = 'fences';
    const digits = String(fence);
    if (!/^\d{1,18}$/.test(digits)) throw invalid(field, 'must be the numbers that came with the leases');
    fences.set(fileIdOf(repository, normalPath(path, field)), digits);
  }
  const named =
    paths.length > 0
      ? filesNamed(repository, paths)
      : filesNamed(
          repository,
          given.map(([path]) => path),
          'fences',
        );
  const known = new Set(named.map(({ fileId }) => fileId));
  for (const fileId of fences.keys()) {
    if (!known.has(fileId)) throw invalid('fences', 'must only be of files that are among paths');
  }
  const files = named.map((file) => ({ name: file, fence: fences.get(file.fileId) ?? null }));
  return { ownerId, repository, files, reason };
}
