/** Text of other parties reaches neither a terminal nor a log as control characters. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { createLog, type LogOptions } from '../../src/lib/log.ts';
import { inLine, inLines } from '../../src/lib/terminal-text.ts';
import { job as plainJob } from '../../src/rest/openapi/examples.ts';
import { runCommand } from '../support/process.ts';

/** Colours, a title, an 8-bit command, a forged line, a deletion, and reversed text. */
const evil =
  '\u001b[31mroot\u001b]0;title\u0007\u009b2J\r\nleasehold: all is well\u007f\u202egnp.exe\u2028x\u061c';
const dangerous = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;
/** Our own line breaks are allowed. */
const withoutBreaks = (text: string) => text.replaceAll('\n', '');

describe('escaping of foreign text', () => {
  it('escapes control characters for one line, and for several', () => {
    expect(inLine('a\u001bb\nc\td\u009b')).to.equal('a\\u001bb\\u000ac\\u0009d\\u009b');
    expect(inLines('a\u001bb\nc\td\r\u202e')).to.equal('a\\u001bb\nc\td\\u000d\\u202e');
    expect(inLine(evil)).not.to.match(dangerous);
    expect(inLine('é 漢 👩‍💻 "x"')).to.equal('é 漢 👩‍💻 "x"');
  });

  for (const human of [true, false]) {
    it(`escapes control characters in a log ${human ? 'for people' : 'of JSON lines'}`, () => {
      const lines: string[] = [];
      const options: LogOptions = { level: 'debug', human, write: (line) => lines.push(line) };
      const error = new Error(evil, { cause: new Error(evil) });
      createLog(options).warn(evil, { text: evil, list: [evil], nothing: undefined, [evil]: evil });
      createLog(options).error('failed', { error });
      const [first = '', second = ''] = lines;
      expect(first.trimEnd().split('\n')).to.have.length(1);
      expect(withoutBreaks(first)).not.to.match(dangerous);
      expect(withoutBreaks(second)).not.to.match(dangerous);
      if (human) return;
      // JSON returns the original text to a program.
      expect(JSON.parse(first)).to.deep.include({ msg: evil, text: evil, list: [evil] });
      expect(JSON.parse(second).error.message).to.equal(evil);
    });
  }

  describe('in the answers of a server', () => {
    let server: Server;
    let url: string;
    let answer: { status: number; body: unknown };
    before((done) => {
      server = createServer((request, response) => {
        request.resume();
        response.writeHead(answer.status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(answer.body));
      });
      server.listen(0, '127.0.0.1', () => {
        url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
        done();
      });
    });
    after((done) => {
      server.closeAllConnections();
      server.close(done);
    });

    const owner = { agent: evil, host: evil, pid: 1, branch: evil };
    const times = { acquired_at: '2026-02-06T20:10:00.000Z', last_heartbeat_at: '2026-02-06T20:10:00.000Z' };
    const blocker = { path: evil, owner_id: evil, owner, age_ms: 1, ...times };
    const report = {
      contention_id: evil,
      owner_id: evil,
      repository: evil,
      paths: [evil],
      denied_at: evil,
      retried_at: evil,
      halted_at: evil,
      retry_s: 180,
      blocker_changed: false,
      blockers: [{ ...blocker, acquired_at: evil, last_heartbeat_at: evil }],
    };
    const job = { ...plainJob, addon_id: evil, job_type: evil, stream: evil, note: evil, claimed_by: evil };
    const refusal = { status: 409, body: { detail: evil, code: evil } };

    const cases: Record<string, [answer: { status: number; body: unknown }, args: string[]]> = {
      'a refusal of a list': [refusal, ['jobs', 'list']],
      'a refusal of a change': [refusal, ['jobs', 'cancel', 'x']],
      'a refusal of an instruction': [refusal, ['files', 'instruct', 'x', 'RETRY']],
      'a refusal of the figures': [refusal, ['stats']],
      'a job': [{ status: 200, body: { job } }, ['jobs', 'get', 'x']],
      'a job in JSON': [{ status: 200, body: { job } }, ['jobs', 'get', 'x', '--json']],
      'a cursor': [
        { status: 200, body: { jobs: [job], next_cursor: evil } },
        ['jobs', 'list', '--limit', '1'],
      ],
      'a submission': [
        { status: 201, body: { job: { ...job, job_id: evil } } },
        ['jobs', 'submit', '--addon-id', 'a', '--job-type', 't', '--cost-units', '1'],
      ],
      'a halt': [
        { status: 200, body: { outcome: 'halted', blocker_report: report } },
        ['guard', 'a.txt', '--', 'true'],
      ],
      'a refusal of a guard': [refusal, ['guard', 'a.txt', '--', 'true']],
    };
    for (const [what, [told, args]] of Object.entries(cases)) {
      it(`escapes control characters in ${what}`, async () => {
        answer = told;
        const { stdout, stderr } = await runCommand([...args], { LEASEHOLD_URL: url });
        const printed = `${stdout}${stderr}`;
        expect(printed, 'something of it is printed').to.include('2J');
        expect(withoutBreaks(printed)).not.to.match(dangerous);
        expect(printed.split('\n'), 'no line is forged').not.to.include('leasehold: all is well');
      });
    }
  });
});
