/**
 * One keep-alive connection to the HTTP face, one request at a time. It reads of an answer what it needs to know where
 * the answer ends and whether it is good; node's own client would cost as much as the server that it measures.
 */
import { connect, type Socket } from 'node:net';

const gap = Buffer.from('\r\n\r\n', 'latin1');
/** `HTTP/1.1 201`: the status is in the same place in every answer. */
const statusAt = 9;

interface Pending {
  /** With the whole answer, whose body begins there. */
  resolve(answer: Buffer, bodyAt: number): void;
  reject(error: Error): void;
}

export class LeanHttpConnection {
  readonly #socket: Socket;
  #pending: Pending | undefined;
  #answer: Buffer | undefined;
  /** Where the answer's body begins and ends, once its head has been read. */
  #body: { at: number; end: number } | undefined;

  constructor(address: string) {
    const { hostname, port } = new URL(address);
    this.#socket = connect({ host: hostname, port: Number(port) });
    this.#socket.setNoDelay(true);
    this.#socket.on('data', (bytes) => this.#receive(bytes));
    this.#socket.on('error', (error) => this.#fail(error));
    this.#socket.on('close', () => this.#fail(new Error('the server closed the connection')));
  }

  /** Sends a whole request and answers with the status. */
  send(request: Buffer): Promise<number> {
    return this.#exchange(request, (answer) => statusOf(answer));
  }

  /** The same, for an answer of JSON that is wanted itself. */
  ask(request: Buffer): Promise<{ status: number; text: string }> {
    return this.#exchange(request, (answer, bodyAt) => ({
      status: statusOf(answer),
      text: answer.toString('utf8', bodyAt),
    }));
  }

  #exchange<T>(request: Buffer, read: (answer: Buffer, bodyAt: number) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#pending = { resolve: (answer, bodyAt) => resolve(read(answer, bodyAt)), reject };
      this.#socket.write(request);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(bytes: Buffer): void {
    const answer = this.#answer ? Buffer.concat([this.#answer, bytes]) : bytes;
    this.#answer = answer;
    this.#body ??= bodyOf(answer);
    if (this.#body === undefined || answer.length < this.#body.end) return;
    const pending = this.#pending;
    const { at } = this.#body;
    this.#pending = undefined;
    this.#answer = undefined;
    this.#body = undefined;
    pending?.resolve(answer, at);
  }

  #fail(error: Error): void {
    this.#pending?.reject(error);
    this.#pending = undefined;
  }
}

const statusOf = (answer: Buffer): number => Number(answer.toString('latin1', statusAt, statusAt + 3));

function bodyOf(answer: Buffer): { at: number; end: number } | undefined {
  const headEnd = answer.indexOf(gap);
  if (headEnd < 0) return undefined;
  const length = /^content-length: (\d+)/im.exec(answer.toString('latin1', 0, headEnd))?.[1];
  const at = headEnd + gap.length;
  return { at, end: at + Number(length ?? 0) };
}

/** A POST of JSON, complete with its head, to be sent as it is. */
export function post(path: string, body: unknown): Buffer {
  const text = JSON.stringify(body);
  const head = `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(text)}`;
  return Buffer.from(`${head}\r\n\r\n${text}`);
}

/** A GET, to be sent as it is. */
export const get = (path: string): Buffer => Buffer.from(`GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`);
