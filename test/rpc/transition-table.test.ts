import { expect } from 'chai';
import { TransitionTable } from '../../src/rpc/transition-table.ts';

describe('a table of transitions', () => {
  const rows = [
    { event: 'knock', from: ['Shut'], to: 'Open', action: 'let in' },
    { event: 'knock', from: ['Open'], to: 'unchanged', action: 'none' },
    { event: 'lock', from: ['Open', 'Shut'], to: 'Locked', action: 'turn key' },
  ] as const;
  type Row = (typeof rows)[number];
  const table = new TransitionTable<Row['from'][number] | 'Locked', Row['event'], Row['action']>(rows);

  it('finds the state and the action after an event', () => {
    expect(table.step('Shut', 'knock')).to.deep.equal({ to: 'Open', action: 'let in' });
    expect(table.step('Open', 'knock')).to.deep.equal({ to: 'Open', action: 'none' });
  });

  it('throws for an event that is not allowed in a state', () => {
    expect(table.allows('Locked', 'knock')).to.equal(false);
    expect(() => table.step('Locked', 'knock')).to.throw('"knock" is not allowed in Locked');
  });

  it('refuses two rows for the same event in the same state', () => {
    expect(() => new TransitionTable([rows[0], rows[0]])).to.throw('two rows for "knock" in Shut');
  });

  it('draws one arrow for all events between two states', () => {
    expect(table.diagram('Shut').split('\n')).to.deep.equal([
      'stateDiagram-v2',
      '    [*] --> Shut',
      '    Shut --> Open: knock',
      '    Open --> Open: knock',
      '    Open --> Locked: lock',
      '    Shut --> Locked: lock',
      '    Locked --> [*]',
    ]);
  });
});
