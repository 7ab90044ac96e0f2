/**
 * The API's description, an OpenAPI 3.1 document. It is generated from the routes' documentation and from the
 * schemas that validate requests, so that no part of it has to be updated by hand.
 */
import Type, { type TObject, type TSchema } from 'typebox';
import { accessOfRoute } from '../../domain/access/methods.ts';
import { limits } from '../../domain/limits.ts';
import { OwnerReport } from '../../domain/requests/files.ts';
import { version } from '../../lib/version.ts';
import { isOpenToAnyHost } from '../http/browser-guard.ts';
import { type ErrorBody, statuses } from '../http/errors.ts';
import type { Route } from '../http/router.ts';
import { sessionCookieName } from '../http/session-cookies.ts';
import { ErrorRecord, errorDocs } from './error-docs.ts';
import { type Answer, type Operation, tags } from './operation.ts';
import { type OpenApiObject, SchemaPrinter, withoutNull } from './schema-printer.ts';
import { word } from './schema-types.ts';

type Code = ErrorBody['code'];

/** Path parameters. An unknown id is not found; only an owner's id can be invalid. */
const pathSchemas: Readonly<Record<string, object>> = {
  job_id: word('The job, a UUID.'),
  lease_id: word('The lease, a UUID.'),
  key_id: word('The key, by the first part of its text.'),
  contention_id: word('The contention, a UUID.'),
  owner_id: OwnerReport.properties.owner_id,
};

/** Possible errors of every request, except on paths that accept any host and need no credential. */
const ofHosts: readonly Code[] = ['host_not_allowed', 'unauthenticated', 'permission_denied', 'rate_limited'];
/** Possible errors of a write. */
const ofWrites: readonly Code[] = ['origin_not_allowed'];
/** Possible errors of every request that uses the database. */
const always: readonly Code[] = [
  'invalid_request',
  'overloaded',
  'unavailable',
  'deadline_exceeded',
  'internal',
];
/** Possible errors of a request with a body. */
const ofBodies: readonly Code[] = ['payload_too_large', 'unsupported_media_type'];
/** Errors whose answer says when to repeat the request. */
const passing: readonly Code[] = ['overloaded', 'rate_limited', 'unavailable'];

/** How a caller proves who it is. */
const securitySchemes = {
  key: {
    type: 'http',
    scheme: 'bearer',
    description:
      'A key that `leasehold keys create` has printed. A server without authentication needs none.',
  },
  session: {
    type: 'apiKey',
    in: 'cookie',
    name: sessionCookieName,
    description:
      'The session of a browser. It counts for requests of pages of this server alone. On plain loopback ' +
      'the cookie is called `leasehold`.',
  },
};

export function openApi(routes: readonly Route[]): object {
  return new Description(routes).document;
}

const sizeText = (bytes: number): string =>
  bytes >= 1024 ** 2 ? `${bytes / 1024 ** 2} MiB` : `${bytes / 1024} KiB`;

/** Builds one document. */
class Description {
  readonly document: object;
  readonly #schemas = new SchemaPrinter();
  readonly #responses: Record<string, OpenApiObject> = {};

  constructor(routes: readonly Route[]) {
    const paths: Record<string, OpenApiObject> = {};
    for (const route of routes) {
      paths[route.path] ??= {};
      Object.assign(paths[route.path] as OpenApiObject, {
        [route.method.toLowerCase()]: this.#operation(route),
      });
    }
    this.document = {
      openapi: '3.1.1',
      info: {
        title: 'Leasehold',
        version,
        summary: 'A service that leases work.',
        description:
          'One owner per job, or per file, for a bounded time, kept alive only by heartbeats. Requests and answers are JSON in UTF-8; times are ISO-8601 in UTC. A field without a value is `null` and not left out, unknown fields of a request and of objects in it are ignored and named with their paths in `warnings`, a list of texts in the answer, and answers may have more fields than are described here. HEAD is answered wherever GET is.',
        license: { name: 'MIT', identifier: 'MIT' },
      },
      servers: [{ url: '/', description: 'This server.' }],
      tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
      paths,
      // The empty alternative stands for a server without authentication.
      security: [{}, ...Object.keys(securitySchemes).map((name) => ({ [name]: [] }))],
      components: { securitySchemes, schemas: this.#schemas.components, responses: this.#responses },
    };
  }

  #operation({ about, path, method, bodyBytesMax = limits.jobBytes }: Route): OpenApiObject {
    const parameters = [...this.#inPath(path), ...this.#inQuery(about)];
    return {
      operationId: about.id,
      tags: [about.tag],
      summary: about.summary,
      ...(about.details !== undefined && { description: about.details }),
      ...(parameters.length > 0 && { parameters }),
      ...(accessOfRoute(method, path) === 'open' && { security: [] }),
      ...(about.body && { requestBody: this.#body(about.body, bodyBytesMax) }),
      responses: { ...this.#answers(about), ...this.#errors(about, method !== 'GET', isOpenToAnyHost(path)) },
    };
  }

  #inPath(path: string): OpenApiObject[] {
    return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => {
      const schema = pathSchemas[name];
      if (!schema) throw new Error(`nothing is known of {${name}} in ${path}`);
      const { description, ...printed } = this.#schemas.print(schema);
      return { name, in: 'path', required: true, description, schema: printed };
    });
  }

  #inQuery({ query }: Operation): OpenApiObject[] {
    const required = (query as { required?: string[] } | undefined)?.required ?? [];
    return Object.entries(query?.properties ?? {}).map(([name, schema]) => {
      const { description, ...printed } = withoutNull(this.#schemas.print(schema));
      return {
        name,
        in: 'query',
        // An empty parameter counts as absent.
        ...(required.includes(name) ? { required: true } : { allowEmptyValue: true }),
        description,
        schema: printed,
      };
    });
  }

  #body({ schema, examples }: NonNullable<Operation['body']>, bytesMax: number): OpenApiObject {
    return {
      description: `At most ${sizeText(bytesMax)}.`,
      required: ((schema as { required?: string[] }).required ?? []).length > 0,
      content: { 'application/json': { schema: this.#schemas.print(schema), ...shown(examples) } },
    };
  }

  #answers({ answers }: Operation): OpenApiObject {
    return Object.fromEntries(
      Object.entries(answers).map(([status, answer]) => [
        status,
        { description: answer.summary, ...this.#content(answer) },
      ]),
    );
  }

  #content({ schema, mediaType, examples }: Answer): OpenApiObject {
    if (schema)
      return { content: { 'application/json': { schema: this.#schemas.print(schema), ...shown(examples) } } };
    return mediaType === undefined ? {} : { content: { [mediaType]: { schema: { type: 'string' } } } };
  }

  /** The errors of an operation, by status. Responses that several operations share become components. */
  #errors({ errors, refusal }: Operation, isWrite: boolean, isOpen: boolean): OpenApiObject {
    const codes = new Set<Code>([
      ...(errors === 'nothing' ? [] : always),
      ...(isWrite ? [...ofBodies, ...ofWrites] : []),
      ...(errors === 'nothing' ? [] : errors),
      ...(isOpen ? [] : ofHosts),
    ]);
    const printed: OpenApiObject = {};
    for (const [status, alike] of Map.groupBy(codes, (code) => statuses[code])) {
      if (refusal) {
        printed[status] = this.#refused(alike, refusal);
        continue;
      }
      const name = alike.map(inCapitals).join('Or');
      this.#responses[name] ??= this.#refused(alike);
      printed[status] = { $ref: `#/components/responses/${name}` };
    }
    return printed;
  }

  #refused(codes: readonly Code[], refusal?: TObject): OpenApiObject {
    return {
      description: codes.map((code) => `\`${code}\`: ${errorDocs[code].means}`).join('\n\n'),
      ...(codes.some((code) => passing.includes(code)) && {
        headers: { 'Retry-After': { description: 'In seconds.', schema: { type: 'integer' } } },
      }),
      content: {
        'application/json': {
          schema: this.#error(codes, refusal),
          examples: Object.fromEntries(
            codes.map((code) => [code, { value: { ...said(refusal), ...errorDocs[code].example, code } }]),
          ),
        },
      },
    };
  }

  /** An error with one of these codes, and the fields that a contract adds. */
  #error(codes: readonly Code[], refusal?: TObject): OpenApiObject {
    const { detail, code, ...others } = ErrorRecord.properties;
    const { description } = code as { description?: string };
    const ownCode = { type: 'string', enum: codes, description };
    if (!refusal)
      return { ...this.#schemas.print(ErrorRecord), type: 'object', properties: { code: ownCode } };
    const whole = Type.Object({ ...refusal.properties, detail, code, ...others });
    const printed = this.#schemas.print(whole) as { properties: OpenApiObject };
    return { ...printed, properties: { ...printed.properties, code: ownCode } };
  }
}

/** An example of the fields that a contract adds to an error: constants, or else false or null. */
const said = (refusal?: TObject): OpenApiObject =>
  Object.fromEntries(
    Object.entries<TSchema & { const?: unknown; type?: string }>(refusal?.properties ?? {}).map(
      ([name, { const: always, type }]) => [name, type === 'boolean' ? (always ?? false) : null],
    ),
  );

/** One example directly, several ones numbered. */
function shown(examples: readonly unknown[]): OpenApiObject {
  if (examples.length < 2) return examples.length === 0 ? {} : { example: examples[0] };
  return {
    examples: Object.fromEntries(examples.map((value, i) => [`example ${i + 1}`, { value }])),
  };
}

/** `job_not_found` becomes `JobNotFound`. */
const inCapitals = (code: string): string =>
  code.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
