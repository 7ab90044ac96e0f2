import { expect } from 'chai';
import { PostgresChannel } from '../../../src/store/connection/notify-channel.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { silentLog } from '../../support/jobs.ts';

/** Collects messages and lets a test wait for one. */
function inbox() {
  const messages: string[] = [];
  let notice = () => {};
  const take = async (wanted: string) => {
    while (!messages.includes(wanted)) {
      await new Promise<void>((resolve) => {
        notice = resolve;
      });
    }
  };
  return {
    messages,
    take,
    put: (message: string) => {
      messages.push(message);
      notice();
    },
  };
}

describe('PostgresChannel', () => {
  onEveryEngine((kind) => {
    if (kind.name !== 'postgresql') return;
    let store: TestDatabase;
    beforeEach(async () => {
      store = await kind.open();
    });
    afterEach(() => store.close());

    const connected = async (channel: PostgresChannel, box: ReturnType<typeof inbox>) => {
      channel.start(box.put);
      const hello = `hello ${Math.random()}`;
      const again = setInterval(() => channel.send(hello), 20);
      await box.take(hello);
      clearInterval(again);
    };

    const hangUp = async () => {
      const ended = await store.database.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'leasehold listener' and datname = current_database()",
        [],
      );
      expect(ended).to.have.length(1);
    };

    it('delivers messages to every listener, in order', async () => {
      const url = store.options.url ?? '';
      const [a, b] = [new PostgresChannel(url, silentLog), new PostgresChannel(url, silentLog)];
      const [inA, inB] = [inbox(), inbox()];
      try {
        await connected(a, inA);
        await connected(b, inB);
        for (let i = 0; i < 100; i++) a.send(`number ${i}`);
        await Promise.all([inA.take('number 99'), inB.take('number 99')]);
        const numbers = inB.messages.filter((message) => message.startsWith('number'));
        expect(numbers).to.deep.equal(Array.from({ length: 100 }, (_, i) => `number ${i}`));
      } finally {
        await Promise.all([a.stop(), b.stop()]);
      }
    });

    it('sends messages queued before it is connected, and reports every connection', async () => {
      const channel = new PostgresChannel(store.options.url ?? '', silentLog);
      const box = inbox();
      const openings = inbox();
      try {
        channel.send('before it was started');
        channel.start(box.put, () => openings.put(`opening ${openings.messages.length}`));
        channel.send('before it was connected');
        await box.take('before it was started');
        await box.take('before it was connected');
        expect(openings.messages).to.deep.equal(['opening 0']);
        await hangUp();
        await openings.take('opening 1');
      } finally {
        await channel.stop();
      }
    });

    it('reconnects when its connection is ended, and stops also while disconnected', async () => {
      const channel = new PostgresChannel(store.options.url ?? '', silentLog);
      const box = inbox();
      try {
        await connected(channel, box);
        await hangUp();
        const again = setInterval(() => channel.send('back'), 20);
        await box.take('back');
        clearInterval(again);
      } finally {
        await channel.stop();
      }
      const nowhere = new PostgresChannel('postgres://postgres@127.0.0.1:1/none', silentLog);
      nowhere.start(() => {});
      nowhere.send('lost');
      await nowhere.stop();
    });
  });
});
