/**
 * The one state machine behind all contracts. The table below is the only definition of the allowed
 * transitions:
 * - the engine consults it;
 * - the store's statements use its numbers;
 * - the diagram in docs/concepts.md is generated from it;
 * - the tests walk it.
 */

/** The states, in the order of their numbers in the database. Numbers are stored and never reused. */
export const states = [
  'QUEUED',
  'CLAIMED',
  'PREPARING',
  'LEASE_PENDING',
  'LEASED',
  'RUNNING',
  'DONE',
  'FAILED',
  'CANCELED',
  'TIMEOUT',
] as const;

export type State = (typeof states)[number];

/** The events of a job's history, in the order of their numbers in the database. */
export const eventTypes = [
  'JOB_SUBMITTED',
  'JOB_CLAIMED',
  'JOB_PREPARING',
  'JOB_LEASE_PENDING',
  'LEASE_GRANTED',
  'LEASE_DENIED',
  'JOB_RUNNING',
  'LEASE_RELEASED',
  'LEASE_EXPIRED',
  'CLAIM_EXPIRED',
  'JOB_REQUEUED',
  'JOB_DONE',
  'JOB_FAILED',
  'JOB_TIMEOUT',
  'JOB_CANCEL_REQUESTED',
  'JOB_CANCELED',
  'JOB_DEAD_LETTERED',
  'JOB_RETRIED',
  'JOB_UNSCHEDULABLE',
] as const;

export type EventType = (typeof eventTypes)[number];

export interface Transition {
  /** The action, named as in the contracts. */
  readonly verb: Verb;
  readonly from: readonly State[];
  /** The state after the action; the same state where the action only sets a mark. */
  readonly to: State;
  /** The event that records the action. */
  readonly event: EventType;
}

const claimed = ['CLAIMED', 'PREPARING', 'LEASE_PENDING'] as const;
const leased = ['LEASED', 'RUNNING'] as const;

export const transitions = [
  { verb: 'claim', from: ['QUEUED'], to: 'CLAIMED', event: 'JOB_CLAIMED' },
  { verb: 'prepare', from: ['CLAIMED'], to: 'PREPARING', event: 'JOB_PREPARING' },
  { verb: 'await lease', from: ['CLAIMED', 'PREPARING'], to: 'LEASE_PENDING', event: 'JOB_LEASE_PENDING' },
  { verb: 'give back', from: claimed, to: 'QUEUED', event: 'JOB_REQUEUED' },
  { verb: 'lose claim', from: claimed, to: 'QUEUED', event: 'CLAIM_EXPIRED' },
  { verb: 'exhaust claims', from: claimed, to: 'FAILED', event: 'JOB_FAILED' },
  { verb: 'grant', from: ['LEASE_PENDING'], to: 'RUNNING', event: 'LEASE_GRANTED' },
  { verb: 'acquire', from: ['QUEUED'], to: 'LEASED', event: 'LEASE_GRANTED' },
  { verb: 'acquire from stream', from: ['QUEUED'], to: 'RUNNING', event: 'LEASE_GRANTED' },
  { verb: 'first heartbeat', from: ['LEASED'], to: 'RUNNING', event: 'JOB_RUNNING' },
  { verb: 'complete', from: ['RUNNING'], to: 'DONE', event: 'JOB_DONE' },
  { verb: 'fail', from: ['RUNNING'], to: 'FAILED', event: 'JOB_FAILED' },
  { verb: 'requeue', from: leased, to: 'QUEUED', event: 'JOB_REQUEUED' },
  { verb: 'time out', from: leased, to: 'TIMEOUT', event: 'JOB_TIMEOUT' },
  { verb: 'stop', from: leased, to: 'CANCELED', event: 'JOB_CANCELED' },
  { verb: 'cancel', from: ['QUEUED', ...claimed], to: 'CANCELED', event: 'JOB_CANCELED' },
  { verb: 'retry', from: ['FAILED', 'TIMEOUT', 'CANCELED'], to: 'QUEUED', event: 'JOB_RETRIED' },
] as const satisfies readonly { verb: string; from: readonly State[]; to: State; event: EventType }[];

export type Verb = (typeof transitions)[number]['verb'];

const byVerb = new Map<Verb, Transition>(transitions.map((transition) => [transition.verb, transition]));

export function transition(verb: Verb): Transition {
  const found = byVerb.get(verb);
  if (!found) throw new Error(`no such verb: ${verb}`);
  return found;
}

/** Whether `verb` is allowed for a job in `state`. */
export const allows = (verb: Verb, state: State): boolean => transition(verb).from.includes(state);

export const terminalStates = ['DONE', 'FAILED', 'CANCELED', 'TIMEOUT'] as const satisfies readonly State[];
export const claimedStates: readonly State[] = claimed;
export const leasedStates: readonly State[] = leased;

export const isTerminal = (state: State): boolean => (terminalStates as readonly State[]).includes(state);
export const isClaimed = (state: State): boolean => claimedStates.includes(state);
export const isLeased = (state: State): boolean => leasedStates.includes(state);

export const stateNumber = (state: State): number => states.indexOf(state);
export const eventNumber = (type: EventType): number => eventTypes.indexOf(type);

export function stateNamed(number: number): State {
  const state = states[number];
  if (!state) throw new Error(`the database holds a state this version does not know: ${number}`);
  return state;
}

export function eventNamed(number: number): EventType {
  const type = eventTypes[number];
  if (!type) throw new Error(`the database holds an event this version does not know: ${number}`);
  return type;
}

/** The table as a Mermaid diagram, for docs/concepts.md. */
export function diagram(): string {
  const arrows = transitions.flatMap(({ verb, from, to }) =>
    from.map((state) => `    ${state} --> ${to}: ${verb}`),
  );
  const ends = terminalStates.map((state) => `    ${state} --> [*]`);
  return ['stateDiagram-v2', '    [*] --> QUEUED: submit', ...arrows, ...ends].join('\n');
}
