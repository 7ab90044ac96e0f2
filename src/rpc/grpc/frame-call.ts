/**
 * Binds bidirectional streams to grpc-js below its own streams, and reads frames one by one.
 *
 * A `ServerDuplexStream` reads sixteen frames ahead even when it is paused: 256 MiB of the largest frames. It
 * also costs two queues and an event for each frame. An interceptor between the connection and that stream
 * reads a frame only when the session requests it. It reports a sent frame when the client has taken it.
 */
import type { Http2Session } from 'node:http2';
import {
  Metadata,
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type StatusObject,
} from '@grpc/grpc-js';
import type { Authenticator } from '../../engine/access/authenticator.ts';
import type { Caller } from '../../engine/context/engine-context.ts';
import type { WaitGroup } from '../../lib/async/wait-group.ts';
import type { Log } from '../../lib/log.ts';
import type { CallMeter, RunningCall } from '../../telemetry/call-metrics.ts';
import { endCall, endGone } from '../call-outcome.ts';
import { toConnectError } from '../errors.ts';
import type { FrameSession, FrameStream, OpenStream } from '../implementation.ts';
import { principalOf } from './admission.ts';
import type { ConnectionConduct } from './conduct.ts';
import { type ConnectionAges, sessionOf } from './connection-age.ts';
import { onRefusal } from './refusals.ts';
import { carrierOf, endWithError, goneBecause, sendError, statusOf } from './status.ts';

export interface FrameMethod {
  name: string;
  open: OpenStream;
  meter: CallMeter;
}

export interface FrameCallOptions {
  /** Counts the stream until it is over. */
  calls: WaitGroup;
  log: Log;
  authenticator: Authenticator;
  ages: ConnectionAges;
  conduct: ConnectionConduct;
}

/** One stream. It ends when the session ends it or the client disconnects, whichever comes first. */
export class FrameCall extends ServerInterceptingCall implements FrameStream {
  readonly #call: ServerInterceptingCallInterface;
  readonly #method: FrameMethod;
  readonly #calls: WaitGroup;
  readonly #log: Log;
  readonly #authenticator: Authenticator;
  readonly #ages: ConnectionAges;
  readonly #conduct: ConnectionConduct;
  readonly #http2Session: Http2Session | undefined;
  readonly #beganAt = performance.now();
  #unfollow = () => {};
  readonly #gone = new AbortController();
  #session: FrameSession | undefined;
  #running: RunningCall | undefined;
  #refused: number | undefined;
  #over = false;
  #reading = false;
  #readAgain = false;

  constructor(
    call: ServerInterceptingCallInterface,
    method: FrameMethod,
    { calls, log, authenticator, ages, conduct }: FrameCallOptions,
  ) {
    super(call);
    this.#ages = ages;
    this.#conduct = conduct;
    this.#http2Session = sessionOf(call);
    this.#authenticator = authenticator;
    this.#call = call;
    this.#method = method;
    this.#calls = calls;
    calls.add();
    this.#log = log;
    onRefusal(call, (code) => {
      this.#refused = code;
    });
  }

  override start(): void {
    this.#call.start({
      onReceiveMetadata: (metadata) => this.#safely(() => this.#open(metadata)),
      onReceiveMessage: (frame: Buffer) => this.#safely((session) => this.#receive(session, frame)),
      // A cancelled stream looks half-closed at first. The cancellation that follows at once distinguishes
      // it.
      onReceiveHalfClose: () => setImmediate(() => this.#safely((session) => session?.onEnd())),
      onCancel: () => this.#cancelled(),
    });
  }

  /**
   * A frame may arrive during the request for it, and its handler may request the next: a loop avoids
   * recursion.
   */
  read(): void {
    this.#readAgain = true;
    if (this.#reading) return;
    this.#reading = true;
    while (this.#readAgain && !this.#over) {
      this.#readAgain = false;
      this.#call.startRead();
    }
    this.#reading = false;
  }

  send(frame: Buffer, onSent: () => void): void {
    if (this.#over) return;
    this.#method.meter.sent?.add();
    this.#call.sendMessage(frame, () => this.#safely(onSent));
  }

  end(error?: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#unfollow();
    this.#calls.done();
    const running = this.#running;
    if (error === undefined) {
      this.#call.sendStatus({ code: 0, details: 'OK' });
      if (running) endCall(running, 0);
      return;
    }
    const { name } = this.#method;
    const status = () => statusOf(toConnectError(error, { log: this.#log, method: name }));
    const send = (one: StatusObject) => this.#call.sendStatus(one);
    sendError(running ? endWithError(running, send) : send, status, this.#log);
  }

  #receive(session: FrameSession | undefined, frame: Buffer): void {
    this.#method.meter.received?.add();
    session?.onFrame(frame);
  }

  #open(metadata: Metadata): void {
    this.#running = this.#method.meter.begin(carrierOf(metadata));
    const caller: Caller = {
      peer: this.#call.getPeer(),
      principal: principalOf(metadata),
      method: this.#method.name,
      traceId: this.#running.traceId,
      signal: this.#gone.signal,
    };
    const unfollow = this.#authenticator.follow(caller.principal, (error) => {
      this.end(error);
      this.#session?.onGone();
    });
    const part = this.#ages.join(this.#call, {
      leave: () => this.#safely((session) => session?.onLeave()),
      end: () => this.#safely((session) => session?.onServerStops()),
    });
    this.#unfollow = () => {
      unfollow();
      part();
    };
    this.#session = this.#method.open(this, caller);
    // Some clients send nothing before they have received the headers.
    this.#call.sendMetadata(new Metadata());
    this.read();
  }

  #cancelled(): void {
    if (this.#over) return;
    this.#over = true;
    this.#unfollow();
    this.#calls.done();
    const reason = goneBecause(this.#call.getDeadline());
    if (reason.code === 'canceled') this.#conduct.abandoned(this.#http2Session, this.#beganAt);
    this.#gone.abort(reason);
    if (this.#running && this.#refused !== undefined) endCall(this.#running, this.#refused);
    else if (this.#running) endGone(this.#running, this.#gone.signal);
    this.#session?.onGone();
  }

  /** A programming error ends this stream, not the process: grpc-js expects its listeners not to throw. */
  #safely(work: (session: FrameSession | undefined) => void): void {
    if (this.#over) return;
    try {
      work(this.#session);
    } catch (error) {
      this.end(error);
      this.#session?.onGone();
    }
  }
}
