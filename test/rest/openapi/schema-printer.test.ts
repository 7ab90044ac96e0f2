import { expect } from 'chai';
import Type from 'typebox';
import { optional } from '../../../src/domain/requests/scheduler.ts';
import { Query } from '../../../src/rest/http/query.ts';
import type { Route } from '../../../src/rest/http/router.ts';
import { openApi } from '../../../src/rest/openapi/document.ts';
import { answer, operations } from '../../../src/rest/openapi/operation.ts';
import { SchemaPrinter, withoutNull } from '../../../src/rest/openapi/schema-printer.ts';
import { entity, word } from '../../../src/rest/openapi/schema-types.ts';
import { withDocs } from '../../../src/rest/server/docs-page.ts';
import type { Json } from '../../support/description.ts';
import { caller } from '../../support/jobs.ts';

describe('the printer of schemas', () => {
  const told = (schema: object) => new SchemaPrinter().print(schema);

  it('lists null among the types of a nullable schema', () => {
    expect(told(optional(Type.Integer({ minimum: 1 })))).to.deep.equal({
      type: ['integer', 'null'],
      minimum: 1,
    });
    expect(told(optional(Type.Enum(['A', 'B'], { description: 'Which.' })))).to.deep.equal({
      type: ['string', 'null'],
      enum: ['A', 'B', null],
      description: 'Which.',
    });
    const choice = Type.Union([Type.String(), Type.Boolean(), Type.Null()]);
    expect(told(choice)).to.deep.equal({
      anyOf: [{ type: 'string' }, { type: 'boolean' }, { type: 'null' }],
    });
  });

  it('omits null for a parameter of a path or query', () => {
    const schema = optional(Type.Enum(['A', 'B'], { description: 'Which.' }));
    expect(withoutNull(told(schema))).to.deep.equal({
      type: 'string',
      enum: ['A', 'B'],
      description: 'Which.',
    });
  });

  it('describes the values of an object with free names', () => {
    expect(told(Type.Record(Type.String(), Type.Boolean()))).to.deep.equal({
      type: 'object',
      additionalProperties: { type: 'boolean' },
    });
  });

  it('keeps fields apart from schema keywords of the same name', () => {
    const fields = { type: word('T.'), items: word('I.'), anyOf: word('A.'), title: word('T.') };
    expect(told(Type.Object(fields))).to.deep.equal({
      type: 'object',
      required: ['type', 'items', 'anyOf', 'title'],
      properties: Object.fromEntries(
        Object.keys(fields).map((name) => [
          name,
          { type: 'string', description: `${name.charAt(0).toUpperCase()}.` },
        ]),
      ),
    });
  });

  it('prints a named schema once, and refers to it', () => {
    const schemas = new SchemaPrinter();
    const thing = entity('Thing', 'A thing.', { name: word('Its name.') });
    const reference = { $ref: '#/components/schemas/Thing' };
    expect(schemas.print(thing)).to.deep.equal(reference);
    expect(schemas.print(Type.Array(thing))).to.deep.equal({ type: 'array', items: reference });
    expect(Object.keys(schemas.components)).to.deep.equal(['Thing']);
    const other = entity('Thing', 'Another thing.', { name: word('Its name.') });
    expect(() => schemas.print(other)).to.throw('two schemas are called Thing');
  });
});

describe('the description of routes', () => {
  const { one } = operations('Server', {
    one: { summary: 'One', answers: { 200: answer('It.', Type.String()) }, errors: ['job_not_found'] },
  });
  const route = (method: Route['method'], path: string): Route => ({
    method,
    path,
    about: one,
    handle: async () => ({ status: 200, body: '' }),
  });

  it('describes the routes of the API and those of the description, and no others', async () => {
    const given = [route('GET', '/a'), route('POST', '/a'), route('PUT', '/b/{job_id}')];
    const all = withDocs(given);
    expect(all.slice(0, given.length)).to.deep.equal(given);
    const served = all.map(({ method, path }) => `${method} ${path}`);
    const describing = all.find(({ path }) => path === '/openapi.json');
    const answered = await describing?.handle({
      path: {},
      query: new Query(),
      headers: {},
      body: {},
      caller: { ...caller, signal: new AbortController().signal },
    });
    const { paths } = JSON.parse(answered?.body as string);
    const told = Object.entries<Json>(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(told.sort()).to.deep.equal(served.sort());
    expect(told).to.include.members(['GET /docs', 'GET /docs/', 'GET /openapi.json']);
  });

  it('lists errors by status, and those of bodies only for routes with a body', () => {
    const { paths } = openApi([route('GET', '/a'), route('POST', '/a')]) as Json;
    expect(Object.keys(paths['/a'].get.responses)).to.deep.equal([
      '200',
      '400',
      '401',
      '403',
      '404',
      '429',
      '500',
      '503',
    ]);
    expect(Object.keys(paths['/a'].post.responses)).to.include.members(['413', '415']);
  });

  it('throws for a path parameter without a description', () => {
    expect(() => openApi([route('GET', '/a/{stranger}')])).to.throw('{stranger} in /a/{stranger}');
  });
});
