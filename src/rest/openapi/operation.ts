import type { Static, TObject, TSchema } from 'typebox';
import type { ErrorCode } from '../../domain/errors.ts';

/**
 * What a route says of itself. The API's description is made from this and from the schemas that check requests, and
 * the tests hold every answer to it, so that it is as true as the code.
 */
export interface Operation {
  /** The operation's name, for ever: clients that are generated call their methods after it. */
  id: string;
  tag: Tag;
  /** A line. */
  summary: string;
  /** What a line has no room for. */
  details?: string;
  query?: TObject;
  body?: RequestBody;
  /** What it answers where nothing is wrong, by status. */
  answers: Readonly<Record<number, Answer>>;
  /** What may be wrong beside what may be wrong with every request; 'nothing' where the host alone may be refused. */
  errors: readonly ErrorCode[] | 'nothing';
  /** What its contract says beside the error in a refusal. */
  refusal?: TObject;
}

/** A body that is asked for, and examples that it is checked to take. */
export interface RequestBody {
  schema: TObject;
  examples: readonly object[];
}

export interface Answer {
  summary: string;
  /** JSON of this schema, where it is JSON. */
  schema?: TSchema;
  examples: readonly unknown[];
  /** What kind of text it is, where it is not JSON. */
  mediaType?: string;
}

/** The parts of the description, in the order in which they are shown. */
export const tags = {
  'Queue: jobs': 'The queue contract: jobs, from their submission to their end.',
  'Queue: leases': 'The queue contract: the lease of a claimed job.',
  'Queue: stats': 'The queue contract: capacity, and how things stand.',
  Request: 'The request contract: the next job and its lease in one step.',
  Heartbeat: 'The heartbeat contract: the sign of life that keeps a lease.',
  Worker: 'The worker contract: jobs of streams, attempts and their tokens.',
  Files:
    'The file contract: one owner a file, one retry after three minutes, and a halt that an operator decides.',
  Server: 'The server itself: how it is, and what it can do.',
} as const;
export type Tag = keyof typeof tags;

/** The operations of one part, each named by its key. */
export const operations = <Name extends string>(
  tag: Tag,
  abouts: Readonly<Record<Name, Omit<Operation, 'id' | 'tag'> & { tag?: Tag }>>,
): Readonly<Record<Name, Operation>> =>
  Object.fromEntries(
    Object.entries<Omit<Operation, 'id' | 'tag'> & { tag?: Tag }>(abouts).map(([id, about]) => [
      id,
      { id, tag, ...about },
    ]),
  ) as Record<Name, Operation>;

export const requestBody = <T extends TObject>(schema: T, ...examples: Static<T>[]): RequestBody => ({
  schema,
  examples: examples as object[],
});

export const answer = <T extends TSchema>(summary: string, schema: T, ...examples: Static<T>[]): Answer => ({
  summary,
  schema,
  examples,
});

/** An answer that has no body. */
export const nothing = (summary: string): Answer => ({ summary, examples: [] });

/** An answer that is not JSON. */
export const text = (summary: string, mediaType: string): Answer => ({ summary, mediaType, examples: [] });
