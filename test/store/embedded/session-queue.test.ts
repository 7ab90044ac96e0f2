import { expect } from 'chai';
import { SessionQueue } from '../../../src/store/embedded/session-queue.ts';
import { eachMessage, queryMessage, SYNC_MESSAGE, startupMessage } from '../../../src/store/embedded/wire.ts';

type Bytes = Uint8Array<ArrayBuffer>;

const FLUSH = Uint8Array.of(0x48, 0, 0, 0, 4);
const PARSE_COMPLETE = Uint8Array.of(0x31, 0, 0, 0, 4);
const TERMINATE = Uint8Array.of(0x58, 0, 0, 0, 4);
const ready = (state: 'I' | 'T') => Uint8Array.of(0x5a, 0, 0, 0, 5, state.charCodeAt(0));

/** Understands 'begin', 'commit', 'rollback', Sync and Flush, and records the messages in order. */
class FakeBackend {
  readonly ran: string[] = [];
  #open = false;

  async run(messages: Bytes): Promise<Bytes> {
    let answer: Bytes = new Uint8Array(0);
    eachMessage(messages, (type, start, end) => {
      const sql = new TextDecoder().decode(messages.subarray(start + 5, end - 1));
      const said = type === 0x51 ? sql : String.fromCharCode(type);
      this.ran.push(said);
      if (said === 'begin') this.#open = true;
      if (said === 'commit' || said === 'rollback') this.#open = false;
      answer =
        said === 'H' ? PARSE_COMPLETE : said === 'nonsense' ? PARSE_COMPLETE : ready(this.#open ? 'T' : 'I');
    });
    await Promise.resolve();
    return answer;
  }
}

describe('SessionQueue', () => {
  let backend: FakeBackend;
  let queue: SessionQueue;
  let answered: number[];

  beforeEach(() => {
    backend = new FakeBackend();
    answered = [];
    queue = new SessionQueue({ backend, greeting: ready('I'), answer: (session) => answered.push(session) });
    for (const session of [1, 2, 3]) queue.receive(session, startupMessage({ user: 'postgres' }));
    answered = [];
  });

  /** Sends statements as 'session: sql'. */
  function send(...statements: string[]): void {
    for (const statement of statements) {
      const [session, sql = ''] = statement.split(': ');
      queue.receive(Number(session), queryMessage(sql));
    }
  }

  const idle = () => queue.whenIdle(async () => {});

  it('runs a transaction to its end before other sessions, then in order of arrival', async () => {
    send('1: begin', '2: a', '3: b', '1: c', '2: d', '1: commit');
    await idle();
    await queue.settle();
    expect(backend.ran).to.deep.equal(['begin', 'c', 'commit', 'a', 'b', 'd']);
    expect(answered).to.deep.equal([1, 1, 1, 2, 3, 2]);
  });

  it('keeps the backend for a session in the middle of an extended query', async () => {
    queue.receive(1, FLUSH);
    send('2: a');
    queue.receive(1, SYNC_MESSAGE.slice());
    await queue.settle();
    expect(backend.ran).to.deep.equal(['H', 'S', 'a']);
  });

  it('assembles messages that arrive in pieces', async () => {
    const message = queryMessage('whole');
    for (const byte of message) queue.receive(1, Uint8Array.of(byte));
    await queue.settle();
    expect(backend.ran).to.deep.equal(['whole']);
  });

  it('greets a session once when its first message arrives in pieces', () => {
    for (const byte of startupMessage({ user: 'postgres' })) queue.receive(4, Uint8Array.of(byte));
    expect(answered).to.deep.equal([4]);
  });

  it('drops waiting messages of an ended session, and rolls back its transaction', async () => {
    send('1: begin', '2: never', '3: after');
    queue.receive(2, TERMINATE.slice());
    queue.end(2);
    queue.end(1);
    await idle();
    await queue.settle();
    expect(backend.ran).to.deep.equal(['begin', 'S', 'rollback', 'after']);
    expect(answered).to.deep.equal([3]);
  });

  it('runs internal tasks between transactions only', async () => {
    send('1: begin');
    const errand = queue.whenIdle(async () => void backend.ran.push('errand'));
    send('2: a', '1: commit');
    await errand;
    await queue.settle();
    expect(backend.ran).to.deep.equal(['begin', 'commit', 'errand', 'a']);
  });

  it('runs received messages and rolls back open transactions when it settles', async () => {
    send('1: begin', '2: a', '1: b', '3: begin');
    await queue.settle();
    expect(backend.ran).to.deep.equal(['begin', 'b', 'S', 'rollback', 'a', 'begin', 'S', 'rollback']);
  });
});
