/**
 * The guarantee: text of other callers has no effect on the terminal of an administrator, and cannot look
 * like a further line of a list.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { createLog } from '../../../src/lib/log.ts';
import { noopChannel } from '../../../src/store/connection/notify-channel.ts';
import { databaseTransport } from '../../../src/transport/database-transport.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, engineSettings, TestedEngine } from '../../support/jobs.ts';
import { startKeyedServer } from '../../support/keys.ts';
import { capacityPath } from '../../support/leases-api.ts';
import { runCommand } from '../../support/process.ts';

const hostile = [
  'ann\n2026-01-01 00:00:00 (1 s ago)  ops  keys.revoke  done',
  '\u001b[2J\u001b]0;owned\u0007ann',
  'ann\r\u009b31m\u0008\u0008',
  '\u202enimda\u2066\u200f\u061c',
  'ann\u2028keys.revoke\u2029',
];
/** What a terminal obeys, and what changes the direction of writing; a line break only within a line. */
const dangerous = /[^\P{Cc}\n]|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;
  describe('text of callers in the commands for keys and the audit', () => {
    it('is harmless in lists, in single keys and in JSON', async () => {
      await using server = await startKeyedServer(engine);
      const { headers, text } = server.admin;
      const send = async (method: string, path: string, body: object) => {
        const response = await fetch(`${server.http}${path}`, {
          method,
          headers: { ...headers, 'content-type': 'application/json' },
          body: JSON.stringify(body),
        });
        expect(response.status, await response.clone().text()).to.be.within(200, 201);
        return response.json() as Promise<{ key: { key_id: string } }>;
      };
      const run = async (args: readonly string[]): Promise<string> => {
        const environment = { LEASEHOLD_URL: server.http, LEASEHOLD_API_KEY: text };
        const { code, stdout, stderr } = await runCommand(args, environment);
        expect(code, stderr).to.equal(0);
        expect(stdout, args.join(' ')).not.to.match(dangerous);
        expect(stderr, args.join(' ')).not.to.match(dangerous);
        return stdout;
      };
      for (const [i, requested_by] of hostile.entries()) {
        await send('PUT', capacityPath, { total: 200 + i, requested_by, reason: requested_by });
        const { key } = await send('POST', '/api/access/keys', {
          name: `k${i}`,
          roles: ['observer'],
          note: requested_by,
        });
        const shown = await run(['keys', 'show', key.key_id]);
        expect(shown.split('\n').filter((line) => /^\S+ {2,}\S/.test(line))).to.have.length.above(10);
        expect(shown).not.to.match(/^2026-01-01/m);
        expect(JSON.parse(await run(['keys', 'show', key.key_id, '--json'])).key.note).to.equal(requested_by);
      }
      const lines = (await run(['audit', '--action', 'capacity.set'])).trim().split('\n');
      expect(lines).to.have.length(1 + hostile.length);
      for (const line of lines.slice(1))
        expect(line).to.match(/^\d{4}-\d\d-\d\d .* first key:\w+ +capacity\.set +done/);
      const { events } = JSON.parse(await run(['audit', '--action', 'capacity.set', '--json']));
      expect(events.map((event: { requested_by: string }) => event.requested_by)).to.deep.equal(
        hostile.toReversed(),
      );
      await run(['keys']);
    }).timeout(60_000);

    it('is harmless in the log, as JSON and as text', async () => {
      await using store = await engine.open();
      for (const human of [true, false]) {
        const lines: string[] = [];
        const tested = new TestedEngine({
          database: store.database,
          channel: noopChannel,
          transport: databaseTransport,
          settings: engineSettings,
          log: createLog({ level: 'info', human, write: (line) => void lines.push(line) }),
        });
        for (const [i, requested_by] of hostile.entries())
          await tested.capacity.set({ total: 300 + i, requested_by, reason: requested_by }, caller);
        await tested.stop();
        expect(lines).to.have.length(hostile.length);
        for (const line of lines)
          expect(line.replace(/\n$/, '')).not.to.match(/\n/).and.not.to.match(dangerous);
      }
    });

    it('is harmless if it comes from a server that is not what it seems', async () => {
      const [note = ''] = hostile;
      const key = { key_id: hostile[1], name: hostile[3], roles: [hostile[2]], note, expires_at: null };
      const impostor = createServer((_, response) => {
        response.writeHead(201, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ key, text: `lhk_${hostile[1]}` }));
      });
      await new Promise<void>((resolve) => impostor.listen(0, '127.0.0.1', resolve));
      try {
        const { port } = impostor.address() as AddressInfo;
        const { code, stdout, stderr } = await runCommand(
          ['keys', 'create', '--name', 'a', '--role', 'admin'],
          { LEASEHOLD_URL: `http://127.0.0.1:${port}`, LEASEHOLD_API_KEY: 'lhk_x' },
        );
        expect(code, stderr).to.equal(0);
        expect(stdout).not.to.match(dangerous);
        expect(stderr).not.to.match(dangerous);
      } finally {
        impostor.close();
      }
    });
  });
});
