/**
 * A TCP proxy in front of a PostgreSQL that breaks connections as networks and hosts do.
 *
 * It reads enough of the protocol to know each connection's `application_name`, its backend's process id and how far it
 * has got. A rule waits for the next connection of a name to reach a stage, and then breaks that one. `blackhole` lets
 * existing connections die in silence: both sides stay open and nothing is passed on. New connections work.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** How far a connection has got when it is broken. */
export type Stage = 'connecting' | 'login' | 'ready' | 'statement' | 'transaction' | 'closing';

/** RST, FIN, or the answer of the backend to `pg_terminate_backend`. */
export type Way = 'RST' | 'FIN' | 'terminate';

interface Rule {
  name: string;
  stage: Stage;
  breakIt(link: Link): void | Promise<void>;
  resolve(): void;
}

/** One connection through the proxy. */
export class Link {
  name = '';
  backendPid: number | undefined;
  isReady = false;
  isOpen = true;
  isSilent = false;
  readonly #client: Socket;
  readonly #server: Socket;

  constructor(client: Socket, server: Socket) {
    this.#client = client;
    this.#server = server;
  }

  end(how: 'RST' | 'FIN'): void {
    this.isSilent = true;
    this.#server.destroy();
    if (how === 'RST') this.#client.resetAndDestroy();
    else this.#client.end();
  }
}

export class PostgresProxy {
  readonly #server: Server;
  readonly #target: { host: string; port: number };
  readonly #links = new Set<Link>();
  readonly #sockets = new Set<Socket>();
  #rules: Rule[] = [];
  #accepts = true;

  private constructor(target: { host: string; port: number }) {
    this.#target = target;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async start(port: number, host = '127.0.0.1'): Promise<PostgresProxy> {
    const proxy = new PostgresProxy({ host, port });
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The address of a database, by way of the proxy. */
  url(direct: string): string {
    const url = new URL(direct);
    url.host = `127.0.0.1:${this.port}`;
    return url.href;
  }

  links(name: string): Link[] {
    return [...this.#links].filter((link) => link.name === name && link.isOpen && !link.isSilent);
  }

  /** Breaks the next connection of this name that reaches this stage, and settles when it has. */
  breakNext(name: string, stage: Stage, breakIt: Rule['breakIt']): Promise<void> {
    return new Promise((resolve) => this.#rules.push({ name, stage, breakIt, resolve }));
  }

  /** All connections that are open die in silence; with a name only those. */
  blackhole(name?: string): number {
    const dying = [...this.#links].filter((link) => !link.isSilent && (name ?? link.name) === link.name);
    for (const link of dying) link.isSilent = true;
    return dying.length;
  }

  /** Nothing gets through any more, new connections included, until `open`. */
  cutOff(): void {
    this.#accepts = false;
    this.blackhole();
  }

  /** Connections work again; those that had died in silence are reset. */
  open(): void {
    this.#accepts = true;
    for (const link of this.#links) if (link.isSilent) link.end('RST');
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #accept(client: Socket): void {
    const server = connect(this.#target);
    const link = new Link(client, server);
    link.isSilent = !this.#accepts;
    this.#links.add(link);
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      // The other side is closed with it, as the network would.
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#sockets.delete(socket);
        link.isOpen = false;
        if (!link.isSilent) (socket === client ? server : client).destroy();
        if (socket === client) this.#links.delete(link);
      });
    }
    this.#follow(link, client, server);
  }

  #follow(link: Link, client: Socket, server: Socket): void {
    let inTransaction = false;
    const pass = (from: Buffer, to: Socket) => {
      if (!link.isSilent && to.writable) to.write(from);
    };
    client.on('data', (bytes: Buffer) => {
      if (link.isSilent) return;
      if (link.name === '') link.name = nameIn(bytes);
      if (!link.isReady && this.#hits(link, 'connecting')) return;
      const kind = link.isReady ? String.fromCharCode(bytes[0] ?? 0) : '';
      if (kind === 'X' && this.#hits(link, 'closing')) return;
      pass(bytes, server);
      if (kind !== '' && kind !== 'X') this.#hits(link, inTransaction ? 'transaction' : 'statement');
    });
    server.on('data', (bytes: Buffer) => {
      if (link.isSilent) return;
      const said = readBackend(bytes);
      link.backendPid ??= said.pid;
      if (!link.isReady && said.status === undefined && this.#hits(link, 'login')) return;
      if (!link.isReady && said.status !== undefined && this.#hits(link, 'login')) return;
      pass(bytes, client);
      if (said.status === undefined) return;
      inTransaction = said.status === 'T';
      if (link.isReady) return;
      link.isReady = true;
      this.#hits(link, 'ready');
    });
    client.on('end', () => !link.isSilent && server.end());
    server.on('end', () => !link.isSilent && client.end());
  }

  #hits(link: Link, stage: Stage): boolean {
    const rule = this.#rules.find((one) => one.name === link.name && one.stage === stage);
    if (!rule) return false;
    this.#rules = this.#rules.filter((one) => one !== rule);
    void Promise.resolve(rule.breakIt(link)).then(rule.resolve);
    return true;
  }
}

/** The application's name in a startup message. */
function nameIn(startup: Buffer): string {
  const words = startup.toString('latin1').split('\0');
  const at = words.findIndex((word) => word.endsWith('application_name'));
  return at < 0 ? '' : (words[at + 1] ?? '');
}

/** The backend's process id and the last transaction status in a chunk that begins with a message. */
function readBackend(bytes: Buffer): { pid?: number; status?: string } {
  const said: { pid?: number; status?: string } = {};
  for (let at = 0; at + 5 <= bytes.length; ) {
    const kind = String.fromCharCode(bytes[at] as number);
    if (kind === 'K' && at + 9 <= bytes.length) said.pid = bytes.readInt32BE(at + 5);
    if (kind === 'Z' && at + 6 <= bytes.length) said.status = String.fromCharCode(bytes[at + 5] as number);
    at += 1 + bytes.readUInt32BE(at + 1);
  }
  return said;
}
