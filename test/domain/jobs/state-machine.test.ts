import { expect } from 'chai';
import {
  allows,
  eventTypes,
  isClaimed,
  isLeased,
  isTerminal,
  type State,
  stateNamed,
  stateNumber,
  states,
  transition,
  transitions,
} from '../../../src/domain/jobs/state-machine.ts';

describe('the state machine', () => {
  it('keeps the numbers of states that databases store', () => {
    expect(states.map((state) => `${stateNumber(state)} ${state}`)).to.deep.equal([
      '0 QUEUED',
      '1 CLAIMED',
      '2 PREPARING',
      '3 LEASE_PENDING',
      '4 LEASED',
      '5 RUNNING',
      '6 DONE',
      '7 FAILED',
      '8 CANCELED',
      '9 TIMEOUT',
    ]);
    expect(eventTypes.indexOf('JOB_SUBMITTED')).to.equal(0);
    expect(eventTypes.indexOf('JOB_UNSCHEDULABLE')).to.equal(18);
    expect(() => stateNamed(10)).to.throw('a state this version does not know: 10');
  });

  it('names every verb once, with states that exist', () => {
    const verbs = transitions.map(({ verb }) => verb);
    expect(new Set(verbs).size).to.equal(verbs.length);
    for (const { from, to, event } of transitions) {
      expect(states).to.include.members([...from, to]);
      expect(eventTypes).to.include(event);
    }
  });

  it('reaches every state from QUEUED, and a terminal state from every state', () => {
    const reachable = (start: State) => {
      const seen = new Set<State>([start]);
      for (const state of seen) {
        for (const { from, to } of transitions) if ((from as readonly State[]).includes(state)) seen.add(to);
      }
      return seen;
    };
    expect([...reachable('QUEUED')]).to.have.members([...states]);
    for (const state of states) expect([...reachable(state)].some(isTerminal), state).to.equal(true);
  });

  it('leaves a terminal state only by a retry, and never leaves DONE', () => {
    for (const state of states.filter(isTerminal)) {
      const verbs = transitions.filter(({ verb }) => allows(verb, state)).map(({ verb }) => verb);
      expect(verbs, state).to.deep.equal(state === 'DONE' ? [] : ['retry']);
    }
  });

  it('starts a job only after a claim or a lease', () => {
    const into = (to: State) => transitions.filter((one) => one.to === to).flatMap(({ from }) => [...from]);
    expect(into('RUNNING')).to.have.members(['LEASE_PENDING', 'QUEUED', 'LEASED']);
    expect(into('DONE')).to.deep.equal(['RUNNING']);
    expect(into('TIMEOUT').every(isLeased)).to.equal(true);
  });

  it('classifies every state as exactly one of waiting, claimed, leased and ended', () => {
    for (const state of states) {
      const kinds = [state === 'QUEUED', isClaimed(state), isLeased(state), isTerminal(state)];
      expect(kinds.filter(Boolean), state).to.have.length(1);
    }
  });

  it('allows a verb in exactly the states of its row, for every pair of states', () => {
    for (const { verb, from } of transitions) {
      for (const state of states) {
        expect(allows(verb, state), `${verb} from ${state}`).to.equal(
          (from as readonly State[]).includes(state),
        );
      }
      expect(transition(verb).verb).to.equal(verb);
    }
  });
});
