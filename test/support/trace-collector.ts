/**
 * A collector of OpenTelemetry, as far as tests need one: takes what is posted to `/v1/traces` and decodes it by the field
 * numbers of `opentelemetry/proto/trace/v1/trace.proto`.
 */
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

export interface CollectedSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string;
  name: string;
  /** 1 is internal, 2 is a server's, 3 a client's. */
  kind: number;
  attributes: Record<string, string>;
  links: { traceId: string; spanId: string }[];
  /** 2 is an error. */
  status: number;
  service: string;
}

export class Collector {
  readonly spans: CollectedSpan[] = [];
  readonly requests: { path: string; headers: IncomingHttpHeaders }[] = [];
  readonly #server: Server;

  private constructor(answers: boolean) {
    this.#server = createServer(async (request, response) => {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      this.requests.push({ path: request.url ?? '', headers: request.headers });
      this.spans.push(...decodeRequest(Buffer.concat(parts)));
      if (answers) response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
    });
  }

  /** With `answers: false` it takes everything and says nothing, for ever. */
  static async start({ answers = true } = {}): Promise<Collector> {
    const collector = new Collector(answers);
    await new Promise<void>((resolve) => collector.#server.listen(0, '127.0.0.1', resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

type Field = Uint8Array | number;

/** A message as its fields, by number: bytes where it is delimited, and numbers. Repeated ones come in their order. */
function fieldsOf(bytes: Uint8Array): Map<number, Field[]> {
  const reader = new BinaryReader(bytes);
  const fields = new Map<number, Field[]>();
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    const known = fields.get(number) ?? [];
    fields.set(number, known);
    if (type === WireType.LengthDelimited) known.push(reader.bytes());
    else if (type === WireType.Varint) known.push(Number(reader.int64()));
    else reader.skip(type);
  }
  return fields;
}

const messages = (fields: Map<number, Field[]>, number: number): Map<number, Field[]>[] =>
  (fields.get(number) ?? []).map((field) => fieldsOf(field as Uint8Array));

const hex = (fields: Map<number, Field[]>, number: number): string =>
  Buffer.from((fields.get(number)?.[0] ?? []) as Uint8Array).toString('hex');

const text = (fields: Map<number, Field[]>, number: number): string =>
  Buffer.from((fields.get(number)?.[0] ?? []) as Uint8Array).toString();

const attributesOf = (fields: Map<number, Field[]>, number: number): Record<string, string> =>
  Object.fromEntries(
    messages(fields, number).map((pair) => {
      const [value = new Map<number, Field[]>()] = messages(pair, 2);
      return [text(pair, 1), value.has(1) ? text(value, 1) : String(value.get(3)?.[0])];
    }),
  );

function decodeRequest(body: Uint8Array): CollectedSpan[] {
  return messages(fieldsOf(body), 1).flatMap((resourceSpans) => {
    const [resource = new Map<number, Field[]>()] = messages(resourceSpans, 1);
    const service = attributesOf(resource, 1)['service.name'] ?? '';
    return messages(resourceSpans, 2).flatMap((scopeSpans) =>
      messages(scopeSpans, 2).map((span) => ({
        traceId: hex(span, 1),
        spanId: hex(span, 2),
        parentSpanId: hex(span, 4),
        name: text(span, 5),
        kind: Number(span.get(6)?.[0] ?? 0),
        attributes: attributesOf(span, 9),
        links: messages(span, 13).map((link) => ({ traceId: hex(link, 1), spanId: hex(link, 2) })),
        status: Number(messages(span, 15)[0]?.get(3)?.[0] ?? 0),
        service,
      })),
    );
  });
}
