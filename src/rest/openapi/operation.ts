import type { Static, TObject, TSchema } from 'typebox';
import type { ErrorCode } from '../../domain/errors.ts';

/**
 * The documentation of a route. The API's description is generated from it and from the schemas that validate
 * requests. The tests check every answer against it, so that it matches the code.
 */
export interface Operation {
  /** The stable name of the operation: generated clients name their methods after it. */
  id: string;
  tag: Tag;
  /** One line. */
  summary: string;
  /** More than one line can say. */
  details?: string;
  query?: TObject;
  body?: RequestBody;
  /** The answers without an error, by status. */
  answers: Readonly<Record<number, Answer>>;
  /** Possible errors besides those of every request; 'nothing' where only the host can be rejected. */
  errors: readonly ErrorCode[] | 'nothing';
  /** The fields that the contract adds to an error. */
  refusal?: TObject;
}

/** A request body, with examples that the tests validate. */
export interface RequestBody {
  schema: TObject;
  examples: readonly object[];
}

export interface Answer {
  summary: string;
  /** The schema of a JSON answer. */
  schema?: TSchema;
  examples: readonly unknown[];
  /** The media type of an answer that is not JSON. */
  mediaType?: string;
}

/** The sections of the description, in the order in which they are shown. */
export const tags = {
  'Queue: jobs': 'The queue contract: jobs, from their submission to their end.',
  'Queue: leases': 'The queue contract: the lease of a claimed job.',
  'Queue: stats': 'The queue contract: capacity, and figures of the queue.',
  Request: 'The request contract: the next job and its lease in one step.',
  Heartbeat: 'The heartbeat contract: the heartbeats that keep a lease.',
  Worker: 'The worker contract: jobs of streams, attempts and their tokens.',
  Files:
    'The file contract: one owner a file, one retry after three minutes, and a halt that an operator decides.',
  Access: 'Callers: keys, their rights, and the audit of privileged acts.',
  Server: 'The server itself: its condition and its features.',
} as const;
export type Tag = keyof typeof tags;

/** The operations of one section, each named by its key. */
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

/** An answer without a body. */
export const nothing = (summary: string): Answer => ({ summary, examples: [] });

/** An answer that is not JSON. */
export const text = (summary: string, mediaType: string): Answer => ({ summary, mediaType, examples: [] });
