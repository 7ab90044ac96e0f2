import { Validator } from '@seriousme/openapi-schema-validator';
import { expect } from 'chai';
import { version } from '../../../src/lib/version.ts';
import { tags } from '../../../src/rest/openapi/operation.ts';
import { type Description, descriptionFrom, type Json } from '../../support/description.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Answer, ask } from '../../support/jobs-api.ts';
import { nowhere } from '../../support/leases-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { beyond, type Field, fieldsOf, withField, within } from './described-limits.ts';

interface Operation {
  method: string;
  path: string;
  told: Json;
}

onEveryEngine((engine) => {
  describe('the OpenAPI description', () => {
    let server: TestServer;
    let description: Description;
    let operations: Operation[];
    before(async () => {
      server = await startTestServer(engine);
      description = await descriptionFrom(server);
      operations = Object.entries<Json>(description.document.paths).flatMap(([path, methods]) =>
        Object.entries<Json>(methods).map(([method, told]) => ({ method: method.toUpperCase(), path, told })),
      );
    });
    after(() => server.stop());

    /** Calls a route with path parameters that match nothing, and with fields that cause no wait. */
    const send = (
      { method, path }: Operation,
      { query = '', body }: { query?: string; body?: Json } = {},
    ) => {
      const init = body === undefined ? {} : { body: JSON.stringify({ ...body, ...unwaiting(body) }) };
      const headers = { 'content-type': 'application/json' };
      return ask(server, `${path.replaceAll(/\{\w+\}/g, nowhere)}${query}`, { method, headers, ...init });
    };

    const bodyOf = ({ told }: Operation): Json => told.requestBody?.content['application/json'];
    const examplesOf = (media: Json): Json[] =>
      'example' in media
        ? [media.example]
        : Object.values<Json>(media.examples ?? {}).map(({ value }) => value);

    it('validates against the official OpenAPI 3.1 schema', async () => {
      const { valid, errors } = await new Validator().validate(structuredClone(description.document));
      expect(errors ?? [], JSON.stringify(errors)).to.deep.equal([]);
      expect(valid).to.equal(true);
      expect(description.document.openapi).to.match(/^3\.1\./);
      expect(description.document.info.version).to.equal(version);
      expect(description.document.servers).to.deep.equal([{ url: '/', description: 'This server.' }]);
    });

    it('returns the same description to every client, and answers HEAD', async () => {
      const first = await ask(server, '/openapi.json');
      expect(first.body).to.deep.equal(description.document);
      expect((await ask(server, '/openapi.json')).text).to.equal(first.text);
      const head = await ask(server, '/openapi.json', { method: 'HEAD' });
      expect([head.status, head.text]).to.deep.equal([200, '']);
      for (const name of ['content-length', 'content-encoding', 'vary'])
        expect(head.headers.get(name), name).to.equal(first.headers.get(name));
      expect(first.headers.get('content-encoding')).to.equal('gzip');
    });

    it('contains no broken reference and no unused component', () => {
      const pointers = new Set(referencesIn(description.document));
      for (const pointer of pointers) expect(description.at(pointer.slice(1)), pointer).to.be.an('object');
      for (const kind of ['schemas', 'responses'])
        for (const name of Object.keys(description.document.components[kind]))
          expect([...pointers], name).to.include(`#/components/${kind}/${name}`);
    });

    it('names every operation once, and assigns it a tag', () => {
      const ids = operations.map(({ told }) => told.operationId);
      expect(new Set(ids).size).to.equal(ids.length);
      for (const { path, told } of operations) {
        expect(told.operationId, path).to.match(/^[a-z][A-Za-z]+$/);
        expect(told.summary, path).to.be.a('string').and.not.to.equal('');
        expect(told.tags, path).to.have.length(1);
        expect(Object.keys(tags), path).to.include(told.tags[0]);
      }
    });

    it('describes every parameter and every field', () => {
      for (const { path, told } of operations)
        for (const one of told.parameters ?? [])
          expect(one.description, `${one.name} of ${path}`).to.be.a('string').and.not.to.equal('');
      expect([...wordless(description.document, '')]).to.deep.equal([]);
    });

    it('lists every method of every served path, and no other but HEAD (S4)', async () => {
      for (const [path, methods] of Object.entries<Json>(description.document.paths)) {
        const told = Object.keys(methods).map((method) => method.toUpperCase());
        if (told.includes('GET')) told.push('HEAD');
        const answer = await ask(server, path.replaceAll(/\{\w+\}/g, nowhere), { method: 'PATCH' });
        expect(answer.status, path).to.equal(405);
        expect((answer.headers.get('allow') ?? '').split(', ').sort(), path).to.deep.equal(told.sort());
      }
    });

    it('describes the routes of the server itself, with every content type of their answers', async () => {
      const own = operations.filter(({ told }) => told.tags[0] === 'Server');
      expect(own.map(({ path }) => path)).to.include.members(['/healthz', '/readyz', '/metrics', '/docs']);
      for (const { method, path } of own) {
        const response = await fetch(`${server.http}${path}`, { method });
        const type = response.headers.get('content-type') ?? '';
        const body = type.startsWith('application/json') ? await response.json() : await response.text();
        expect(response.status, path).to.equal(200);
        description.checkAnswer(method, path, { status: response.status, type, body });
      }
    });

    it('contains example requests that the schemas and the server accept', async () => {
      for (const operation of operations) {
        const media = bodyOf(operation);
        if (!media) continue;
        const { path, method } = operation;
        expect(examplesOf(media), path).not.to.be.empty;
        for (const example of examplesOf(media)) {
          description.checkBody(method, path, example);
          const answer = await send(operation, { body: example });
          expect(answer.body?.code, `${answer.text} of ${path}`).not.to.equal('invalid_request');
        }
      }
    });

    it('contains example answers that match their schemas', () => {
      for (const { method, path, told } of operations)
        for (const [status, one] of Object.entries<Json>(told.responses)) {
          const { content } = one.$ref ? description.at(one.$ref.slice(1)) : one;
          for (const [type, media] of Object.entries<Json>(content ?? {}))
            for (const body of examplesOf(media))
              description.checkAnswer(method, path, { status: Number(status), type, body });
        }
    });

    it('states the limits at which the server refuses fields of bodies, by name', async () => {
      let tried = 0;
      for (const operation of operations) {
        const media = bodyOf(operation);
        if (!media) continue;
        const [example] = examplesOf(media);
        for (const field of fieldsOf(media.schema)) {
          for (const value of beyond(field)) {
            const body = withField(example, field.path, value);
            const answer = await ask(server, operation.path.replaceAll(/\{\w+\}/g, nowhere), {
              method: operation.method,
              headers: { 'content-type': 'application/json' },
              body: JSON.stringify(body),
            });
            expectRefused(answer, operation, field, value);
            tried++;
          }
          for (const value of within(field)) {
            const answer = await send(operation, { body: withField(example, field.path, value) });
            expect(answer.body?.field, `${answer.text} to ${field.path} of ${operation.path}`).not.to.equal(
              field.path,
            );
          }
        }
      }
      expect(tried).to.be.above(100);
    });

    it('states the limits at which the server refuses parameters of queries, by name', async () => {
      let tried = 0;
      for (const operation of operations) {
        for (const one of operation.told.parameters ?? []) {
          if (one.in !== 'query') continue;
          const field = { path: one.name, schema: one.schema, isRequired: false };
          const queryOf = (value: unknown) =>
            `?${new URLSearchParams({ ...requiredOf(operation), [one.name]: String(value) })}`;
          for (const value of beyond(field)) {
            const answer = await send(operation, { query: queryOf(value) });
            expectRefused(answer, operation, field, value);
            tried++;
          }
          // A cursor or range of the allowed length must still be well-formed.
          if (one.name === 'cursor' || one.name === 'range') continue;
          for (const value of within(field)) {
            const answer = await send(operation, { query: queryOf(value) });
            expect(answer.status, `${answer.text} to ${one.name}=${value}`).to.be.oneOf([200, 404]);
          }
        }
      }
      expect(tried).to.be.above(10);
    });

    function expectRefused(answer: Answer, { path }: Operation, field: Field, value: unknown): void {
      const what = `${answer.text} to ${field.path} = ${JSON.stringify(value)?.slice(0, 80)} of ${path}`;
      expect(answer.status, what).to.equal(400);
      expect(answer.body.code, what).to.equal('invalid_request');
      expect(answer.body.field.replaceAll(/\[\d+\]/g, ''), what).to.equal(field.path);
    }
  });
});

/** The required parameters of a query, with a valid value. */
const requiredOf = ({ told }: Operation): Record<string, string> =>
  Object.fromEntries(
    (told.parameters ?? [])
      .filter((one: Json) => one.in === 'query' && one.required)
      .map((one: Json) => [one.name, String(one.schema.enum?.[0] ?? 'word')]),
  );

/** The fields that set a caller's maximum wait, all zero. */
const unwaiting = (body: Json): Json =>
  Object.fromEntries(Object.keys(body).flatMap((name) => (name.endsWith('wait_ms') ? [[name, 0]] : [])));

function* referencesIn(part: Json): Generator<string> {
  if (typeof part !== 'object' || part === null) return;
  if (typeof part.$ref === 'string') yield part.$ref;
  for (const child of Object.values(part)) yield* referencesIn(child);
}

/** The fields without a description of their own or of the schema that they refer to. */
function* wordless(part: Json, at: string): Generator<string> {
  if (typeof part !== 'object' || part === null) return;
  for (const [name, schema] of Object.entries<Json>(part.type === 'object' ? (part.properties ?? {}) : {})) {
    const isSaid = schema.description || schema.$ref || schema.anyOf?.some((one: Json) => one.$ref);
    if (!isSaid) yield `${at}.${name}`;
  }
  for (const [key, child] of Object.entries(part)) {
    if (key !== 'example' && key !== 'examples') yield* wordless(child, `${at}/${key}`);
  }
}
