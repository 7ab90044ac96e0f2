/**
 * A state machine as data: which event leads from which state to which other, and what the owner of the
 * state does then. Documents draw the same rows that the code looks up.
 */

export interface Transition<State extends string, Event extends string, Action extends string> {
  readonly event: Event;
  readonly from: readonly State[];
  /** The state after the event. */
  readonly to: State | 'unchanged';
  readonly action: Action;
}

/** What follows from an event in a state. */
export interface Step<State extends string, Action extends string> {
  readonly to: State;
  readonly action: Action;
}

export class TransitionTable<State extends string, Event extends string, Action extends string> {
  readonly rows: readonly Transition<State, Event, Action>[];
  readonly #steps = new Map<State, Map<Event, Step<State, Action>>>();

  constructor(rows: readonly Transition<State, Event, Action>[]) {
    this.rows = rows;
    for (const { event, from, to, action } of rows) {
      for (const state of from) {
        const steps = this.#steps.get(state) ?? new Map<Event, Step<State, Action>>();
        if (steps.has(event)) throw new Error(`two rows for "${event}" in ${state}`);
        steps.set(event, { to: to === 'unchanged' ? state : to, action });
        this.#steps.set(state, steps);
      }
    }
  }

  /** Throws if the event cannot occur in the state. */
  step(state: State, event: Event): Step<State, Action> {
    const step = this.#steps.get(state)?.get(event);
    if (!step) throw new Error(`"${event}" is not allowed in ${state}`);
    return step;
  }

  allows(state: State, event: Event): boolean {
    return this.#steps.get(state)?.has(event) ?? false;
  }

  /** The table as a Mermaid diagram, with one arrow for all events between two states. */
  diagram(first: State): string {
    const labels = new Map<string, Event[]>();
    for (const { event, from, to } of this.rows) {
      for (const state of from) {
        const arrow = `${state} --> ${to === 'unchanged' ? state : to}`;
        labels.set(arrow, [...(labels.get(arrow) ?? []), event]);
      }
    }
    const ends = [...new Set(this.rows.map(({ to }) => to))].filter(
      (to) => to !== 'unchanged' && !this.#steps.has(to),
    );
    return [
      'stateDiagram-v2',
      `    [*] --> ${first}`,
      ...[...labels].map(([arrow, events]) => `    ${arrow}: ${events.join(', ')}`),
      ...ends.map((state) => `    ${state} --> [*]`),
    ].join('\n');
  }
}
