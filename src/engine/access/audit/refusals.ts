/**
 * Reports refused calls, so that the audit has them: those without a valid credential, and those that a
 * credential does not permit. Verbs are wrapped as a whole, so that no check in them can be forgotten.
 */
import type { AuditAction } from '../../../domain/access/audit.ts';
import { DomainError } from '../../../domain/errors.ts';
import type { Caller } from '../../context/engine-context.ts';
import type { Engine, Verbs } from '../../engine.ts';

/** A call that may be refused. */
export type RefusedCall = Pick<Caller, 'principal' | 'peer' | 'method' | 'traceId'>;

export interface Refusals {
  /** Notes the error if it is a refusal. Neither waits nor throws. */
  note(call: RefusedCall, error: unknown): void;
}

/** For a server that does not record refusals. */
export const noRefusals: Refusals = { note: () => {} };

/** A call without a valid credential. The caller learns only the text, which is always the same. */
export class UnauthenticatedError extends DomainError {
  /** Which part was wrong. */
  readonly reason: string;
  /** The id of the key that the caller named, if there is such a key. */
  readonly keyId: string | null;

  constructor(reason: string, keyId: string | null = null) {
    super('unauthenticated', 'a valid credential is needed: authorization: Bearer <key or token>');
    this.reason = reason;
    this.keyId = keyId;
  }
}

/** What the audit says of an error; undefined if it is no refusal. */
export function refusalIn(
  error: unknown,
  isAnonymous: boolean,
): { action: AuditAction; reason: string; target: string | null } | undefined {
  if (error instanceof UnauthenticatedError)
    return { action: 'access.unauthenticated', reason: error.reason, target: error.keyId };
  if (!(error instanceof DomainError)) return undefined;
  if (error.code === 'permission_denied')
    return { action: 'access.denied', reason: error.detail, target: null };
  if (error.code === 'rate_limited' && isAnonymous)
    return { action: 'access.unauthenticated', reason: 'too many failed attempts', target: null };
  return undefined;
}

type Verb = (...args: unknown[]) => unknown;

const isCaller = (value: unknown): value is Caller =>
  typeof value === 'object' && value !== null && 'principal' in value;

/** The verbs of an engine; each reports its refusals. */
export const reported = (verbs: Verbs, refusals: Refusals): Verbs =>
  mapped(verbs as unknown as Record<string, Record<string, Verb>>, (noun) =>
    mapped(
      noun,
      (verb): Verb =>
        (...args) => {
          const caller = args.at(-1);
          return isCaller(caller)
            ? watched(
                () => verb(...args),
                (error) => refusals.note(caller, error),
              )
            : verb(...args);
        },
    ),
  ) as unknown as Verbs;

const mapped = <From, To>(record: Record<string, From>, to: (value: From) => To): Record<string, To> =>
  Object.fromEntries(Object.entries(record).map(([name, value]) => [name, to(value)]));

/** Runs a verb and shows its error to `onFailed`, however it fails. */
function watched(run: () => unknown, onFailed: (error: unknown) => void): unknown {
  let answer: unknown;
  try {
    answer = run();
  } catch (error) {
    onFailed(error);
    throw error;
  }
  if (answer instanceof Promise) answer.then(undefined, onFailed);
  else if (typeof answer === 'object' && answer !== null && Symbol.asyncIterator in answer)
    return watchedStream(answer as AsyncIterable<unknown>, onFailed);
  return answer;
}

async function* watchedStream(
  stream: AsyncIterable<unknown>,
  onFailed: (error: unknown) => void,
): AsyncGenerator<unknown> {
  try {
    yield* stream;
  } catch (error) {
    onFailed(error);
    throw error;
  }
}

interface StreamEngine {
  leases: Partial<Pick<Engine['leases'], 'fetch' | 'endEach'>>;
  files: object;
  workers: object;
  readonly draining: boolean;
}

/** The engine of one stream: credits and releases that are refused are reported, the stream goes on. */
export function reportedStream<Whole extends StreamEngine>(
  engine: Whole,
  refusals: Refusals | undefined,
  caller: RefusedCall,
): Whole {
  if (!refusals || caller.principal.kind === 'local') return engine;
  const { fetch, endEach } = engine.leases;
  const note = (error: unknown) => refusals.note(caller, error);
  const leases: StreamEngine['leases'] = { ...engine.leases };
  if (fetch) leases.fetch = (request) => watched(() => fetch(request), note) as ReturnType<typeof fetch>;
  if (endEach)
    leases.endEach = async (releases) => {
      const answers = await endEach(releases);
      for (const answer of answers) if (answer instanceof DomainError) note(answer);
      return answers;
    };
  const own: StreamEngine = {
    leases,
    files: engine.files,
    workers: engine.workers,
    get draining() {
      return engine.draining;
    },
  };
  return own as Whole;
}
