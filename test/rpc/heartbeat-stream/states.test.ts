import { expect } from 'chai';
import { newId } from '../../../src/lib/uuid.ts';
import { createLookups } from '../../../src/rpc/heartbeat-stream/pushed-verdicts.ts';
import { HeartbeatStream } from '../../../src/rpc/heartbeat-stream/session.ts';
import { heartbeatTransitions } from '../../../src/rpc/heartbeat-stream/states.ts';
import { frameFor } from '../../support/heartbeat-streams.ts';
import { ScriptedStream } from '../../support/scripted-stream.ts';
import { StreamDriver, testEveryPair, unreachedIn } from '../../support/stream-states.ts';

class HeartbeatDriver extends StreamDriver {
  readonly stream = new ScriptedStream((stream, { peer, signal }) => {
    const { engine } = this;
    const listed = engine.workers.open('HEARTBEAT_STREAM', peer, () => []);
    return new HeartbeatStream({ engine, stream, signal, looks: createLookups(engine.leases) }, listed);
  });

  frame(): Buffer {
    return frameFor([newId()]);
  }

  protected override failWork(): void {
    expect.fail('a heartbeat stream has no work');
  }
}

describe('the states of a heartbeat stream', () => {
  it('reaches every state except for the one of work streams', () => {
    expect(unreachedIn(heartbeatTransitions)).to.deep.equal(['DrainSent']);
  });

  testEveryPair(heartbeatTransitions, () => new HeartbeatDriver());
});
