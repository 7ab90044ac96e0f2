/**
 * The age of gRPC connections.
 *
 * Guarantees: an old connection announces its end (GOAWAY), so that clients open new calls on another
 * one. Streams are asked to leave at once, and are ended after `leaveMs`. Calls that wait have time to be
 * answered: the connection is cut after `graceMs`, or as soon as nothing is open on it.
 */
import { constants, type Http2Session, type ServerHttp2Session } from 'node:http2';
import { DomainError } from '../../domain/errors.ts';
import { type AgeTimes, ageOf, ageTimes } from '../../lib/net/connection-age.ts';

/** A stream that is open on a connection. */
export interface StreamMember {
  /** Tells the client to go elsewhere, as far as the stream can say that. */
  leave(): void;
  /** Ends the stream, after everything on it is answered. */
  end(): void;
}

export const connectionIsOld = (): DomainError =>
  new DomainError('unavailable', 'the connection has reached its age; go on over another one');

/** The call below a stream that grpc-js hands to its handler, a private property. */
export function innerCallOf(stream: object): object {
  const inner: unknown = Reflect.get(stream, 'call');
  if (typeof inner !== 'object' || inner === null)
    throw new Error('this version of grpc-js keeps the call of a stream elsewhere');
  return inner;
}

/** The connection of a call. It is a property of the call's HTTP/2 stream until that is closed. */
export const sessionOf = (call: object): Http2Session | undefined => (call as WithSession).stream.session;

/** What `join` needs of a call of grpc-js: its HTTP/2 stream is a private property. */
interface WithSession {
  stream: { session?: Http2Session | undefined };
}

/** A stream of this number has never been opened: GOAWAY refuses none of those on their way. */
const lastStreamId = 2 ** 31 - 1;
const opaqueReason = Buffer.from('max_age');

export class ConnectionAges {
  readonly #ageS: number;
  readonly #times: AgeTimes;
  readonly #members = new WeakMap<Http2Session, Set<StreamMember>>();

  constructor(ageS: number, times = ageTimes) {
    this.#ageS = ageS;
    this.#times = times;
  }

  follow(session: ServerHttp2Session): void {
    const ageMs = ageOf(this.#ageS);
    if (ageMs === undefined) return;
    const members = new Set<StreamMember>();
    this.#members.set(session, members);
    const timers = new Set<NodeJS.Timeout>();
    const after = (ms: number, act: () => void) => void timers.add(setTimeout(act, ms).unref());
    const { leaveMs, graceMs } = this.#times;
    after(ageMs, () => {
      if (session.destroyed) return;
      if (!session.closed) {
        session.goaway(constants.NGHTTP2_NO_ERROR, lastStreamId, opaqueReason);
        session.close();
      }
      for (const member of [...members]) member.leave();
    });
    after(ageMs + leaveMs, () => {
      for (const member of [...members]) member.end();
    });
    after(ageMs + graceMs, () => session.destroy());
    session.once('close', () => {
      for (const timer of timers) clearTimeout(timer);
    });
  }

  /** Follows the end of a call's connection until the returned function is called. */
  join(call: object, member: StreamMember): () => void {
    if (this.#ageS === 0) return () => {};
    const session = sessionOf(call);
    const members = session && this.#members.get(session);
    members?.add(member);
    return () => members?.delete(member);
  }
}
