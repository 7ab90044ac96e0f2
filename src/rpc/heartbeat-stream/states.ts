/**
 * The states of the two stream sessions. The tables are the only definition of what a session does about an
 * event:
 * - the sessions look up every event, and end with an error for one that is not allowed in their state;
 * - the diagrams in docs/architecture.md are generated from them;
 * - the tests drive a session through every row.
 *
 * Counts are no states: how many calls are in flight, how much weight is unanswered, whether the engine is
 * overloaded.
 */
import { type Transition, TransitionTable } from '../transition-table.ts';

export const streamStates = [
  /** The session reads frames, answers them, and pushes verdicts. */
  'Open',
  /** The client has ended its side. Everything that was read is answered. */
  'ClientEnded',
  /** The server is about to stop. Each lease gets a verdict with `drain`; nothing more is read. */
  'Draining',
  /** The time for these verdicts has passed. What was read is answered. */
  'DrainExpired',
  /** A work stream only: everything is answered, and the frame with `drain` is leaving. */
  'DrainSent',
  /** The stream will end with an error. What was read is answered first. */
  'Failing',
  /** As before, but heartbeats that have not reached the engine are dropped. */
  'Aborting',
  /** The stream has ended, or its connection is lost. */
  'Closed',
] as const;

export type StreamState = (typeof streamStates)[number];

export const streamEvents = [
  /** A frame that the session requested has arrived. */
  'frame arrives',
  /** The client has ended its side. */
  'client ends',
  /** The server has announced all leases and is about to stop. */
  'server stops',
  /** The time for verdicts with `drain` has passed. */
  'drain expires',
  /** A frame cannot be read, or a field of it ends the stream. */
  'frame refused',
  /** The engine has failed to process heartbeats, and it is no outage. */
  'heartbeats fail',
  /** A work stream only: the engine has failed to grant or to release, and it is no outage. */
  'work fails',
  /** Every item that was read is answered, and every answer has left. */
  'all answered',
  /** The client, the connection or the deadline has cancelled the stream. */
  'connection lost',
  /** A programming error in the session, or an event that is not allowed. */
  'session breaks',
] as const;

export type StreamEvent = (typeof streamEvents)[number];

export type StreamAction =
  | 'read frame'
  | 'stop work'
  | 'start drain timer'
  | 'keep error'
  | 'keep error, drop heartbeats'
  | 'send drain frame'
  | 'end stream: client ended'
  | 'end stream: drained'
  | 'end stream: error'
  | 'close'
  | 'none';

type Row = Transition<StreamState, StreamEvent, StreamAction>;

const draining = ['Draining', 'DrainExpired'] as const;
const healthy = ['Open', 'ClientEnded', ...draining] as const;
const failing = ['Failing', 'Aborting'] as const;

const commonRows: readonly Row[] = [
  { event: 'frame arrives', from: ['Open', ...draining], to: 'unchanged', action: 'read frame' },
  { event: 'frame arrives', from: failing, to: 'unchanged', action: 'none' },
  { event: 'client ends', from: ['Open', ...draining], to: 'ClientEnded', action: 'stop work' },
  { event: 'client ends', from: failing, to: 'unchanged', action: 'none' },
  { event: 'server stops', from: ['Open'], to: 'Draining', action: 'start drain timer' },
  { event: 'server stops', from: ['ClientEnded', ...failing], to: 'unchanged', action: 'none' },
  { event: 'drain expires', from: ['Draining'], to: 'DrainExpired', action: 'none' },
  { event: 'frame refused', from: healthy, to: 'Failing', action: 'keep error' },
  {
    event: 'heartbeats fail',
    from: [...healthy, ...failing],
    to: 'Aborting',
    action: 'keep error, drop heartbeats',
  },
  { event: 'all answered', from: ['ClientEnded'], to: 'Closed', action: 'end stream: client ended' },
  { event: 'all answered', from: failing, to: 'Closed', action: 'end stream: error' },
  { event: 'connection lost', from: [...healthy, ...failing], to: 'Closed', action: 'close' },
  { event: 'session breaks', from: [...healthy, ...failing], to: 'Closed', action: 'end stream: error' },
];

export const heartbeatTransitions = new TransitionTable<StreamState, StreamEvent, StreamAction>([
  ...commonRows,
  { event: 'all answered', from: draining, to: 'Closed', action: 'end stream: drained' },
]);

export const workTransitions = new TransitionTable<StreamState, StreamEvent, StreamAction>([
  ...commonRows,
  { event: 'work fails', from: healthy, to: 'Failing', action: 'keep error' },
  { event: 'work fails', from: failing, to: 'unchanged', action: 'none' },
  { event: 'all answered', from: draining, to: 'DrainSent', action: 'send drain frame' },
  { event: 'all answered', from: ['DrainSent'], to: 'Closed', action: 'end stream: drained' },
  { event: 'frame arrives', from: ['DrainSent'], to: 'unchanged', action: 'none' },
  { event: 'client ends', from: ['DrainSent'], to: 'unchanged', action: 'none' },
  { event: 'connection lost', from: ['DrainSent'], to: 'Closed', action: 'close' },
  { event: 'session breaks', from: ['DrainSent'], to: 'Closed', action: 'end stream: error' },
]);

/** Leases that other actors changed are looked up while the client may send further heartbeats or drains. */
export const pushesVerdicts = (state: StreamState): boolean => state === 'Open' || state === 'Draining';

/** A call to an overloaded engine is repeated, unless the stream gives up its heartbeats. */
export const repeatsCalls = (state: StreamState): boolean => state !== 'Aborting';

/**
 * A heartbeat whose locked row could not be extended needs no answer while the client may send the next one,
 * nor when the stream ends with an error.
 */
export const answersLateFailures = (state: StreamState): boolean => state === 'ClientEnded';
