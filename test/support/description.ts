/**
 * The API's description as a judge: every answer that a test gets over REST has to be one of those that
 * `/openapi.json` tells of, with nothing left out and nothing added, and every body that was taken has to be one that
 * it allows. The description of the first server that answers stands for all servers of this process.
 */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { expect } from 'chai';

// biome-ignore lint/suspicious/noExplicitAny: a document from outside is unknown until it has been looked at
export type Json = any;

interface Documented {
  path: string;
  pattern: RegExp;
  operations: Record<string, Json>;
}

export class Description {
  readonly document: Json;
  readonly #paths: Documented[];
  readonly #open: Ajv2020;
  readonly #closed: Ajv2020;
  readonly #validators = new Map<string, ValidateFunction>();

  constructor(document: Json) {
    this.document = document;
    this.#open = judge(document);
    this.#closed = judge(closed(document));
    // A fixed segment goes before a named one.
    this.#paths = Object.entries<Json>(document.paths)
      .map(([path, operations]) => ({
        path,
        operations,
        pattern: patternOf(path, Object.keys(document.paths)),
      }))
      .sort((one, other) => named(one.path) - named(other.path));
  }

  /** What is said of a request, or undefined where nothing is. */
  find(method: string, path: string): { pointer: string; operation: Json } | undefined {
    const found = this.#paths.find(({ pattern }) => pattern.test(path));
    const operation = found?.operations[method.toLowerCase()];
    return operation && { operation, pointer: `/paths/${escaped(found.path)}/${method.toLowerCase()}` };
  }

  /**
   * Holds an answer to what is said of it. Nothing is said of a HEAD, of a path or a method that is not served, and of
   * RPCs, which are described by their own schema.
   */
  checkAnswer(method: string, path: string, answer: { status: number; type: string; body: unknown }): void {
    if (path.startsWith('/leasehold.v1.')) return;
    const found = this.find(method, path);
    const what = `${method} ${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`;
    if (!found) {
      if (method !== 'HEAD') expect(answer.status, what).to.be.oneOf([400, 404, 405]);
      return;
    }
    const told = found.operation.responses[answer.status];
    expect(told, `what is said of ${what}`).to.be.an('object');
    const pointer = told.$ref ? told.$ref.slice(1) : `${found.pointer}/responses/${answer.status}`;
    const { content } = this.at(pointer);
    if (!content) {
      expect(answer.body, what).to.equal(undefined);
      return;
    }
    const [mediaType = ''] = Object.keys(content);
    expect(answer.type.split(';', 1)[0], what).to.equal(mediaType);
    if (mediaType !== 'application/json') return;
    // Every answer to a body may name unknown fields, which is said once for all of them.
    const { warnings, ...body } = answer.body as { warnings?: unknown };
    if (warnings !== undefined) expect(warnings, what).to.be.an('array').and.not.to.be.empty;
    const value = warnings === undefined ? answer.body : body;
    this.#check(this.#closed, `${pointer}/content/${escaped(mediaType)}/schema`, value, what);
  }

  /** Holds a body that was taken to what is said of bodies. */
  checkBody(method: string, path: string, body: unknown): void {
    const found = this.find(method, path);
    if (!found?.operation.requestBody) return;
    const pointer = `${found.pointer}/requestBody/content/${escaped('application/json')}/schema`;
    this.#check(this.#open, pointer, body, `${method} ${path} took ${JSON.stringify(body)}`);
  }

  /** The part of the document at a pointer. */
  at(pointer: string): Json {
    const steps = pointer.split('/').slice(1);
    return steps.reduce(
      (part, step) => part?.[step.replaceAll('~1', '/').replaceAll('~0', '~')],
      this.document,
    );
  }

  /** The checker of the schema at a pointer, as everybody reads it. */
  validator(pointer: string): ValidateFunction {
    return this.#validator(this.#open, pointer);
  }

  #check(ajv: Ajv2020, pointer: string, value: unknown, what: string): void {
    const validate = this.#validator(ajv, pointer);
    if (validate(value)) return;
    throw new Error(`${what}, which is not what is said of it: ${ajv.errorsText(validate.errors)}`);
  }

  #validator(ajv: Ajv2020, pointer: string): ValidateFunction {
    const key = `${ajv === this.#open ? 'open' : 'closed'} ${pointer}`;
    const known = this.#validators.get(key);
    if (known) return known;
    const validate = ajv.compile({ $ref: `${base}#${encodeURI(pointer)}` });
    this.#validators.set(key, validate);
    return validate;
  }
}

const base = 'https://description/';

function judge(document: object): Ajv2020 {
  const ajv = new Ajv2020({ strict: true, strictRequired: false, allowUnionTypes: true, allErrors: true });
  formats.default(ajv);
  // The document is no schema itself; those in it are found by their place.
  ajv.addVocabulary(Object.keys(document));
  return ajv.addSchema({ ...document, $id: base }, undefined, undefined, false);
}

/** The same document, in which no object may have more than is told of it. */
function closed(part: Json): Json {
  if (Array.isArray(part)) return part.map(closed);
  if (typeof part !== 'object' || part === null) return part;
  const copy = Object.fromEntries(Object.entries(part).map(([key, value]) => [key, closed(value)]));
  const isObject = part.type === 'object' || (Array.isArray(part.type) && part.type.includes('object'));
  // What stands beside a reference says more of the same object, which is closed where it is.
  if (isObject && part.properties && !part.$ref && part.additionalProperties === undefined)
    copy.additionalProperties = false;
  return copy;
}

const escaped = (step: string): string => step.replaceAll('~', '~0').replaceAll('/', '~1');
const named = (path: string): number => path.split('{').length;

/** What the path of a request is like. No name in it is a word that stands at the same place in another path. */
function patternOf(path: string, paths: readonly string[]): RegExp {
  const segments = path.split('/');
  const patterns = segments.map((segment, i) => {
    if (!segment.startsWith('{')) return segment.replaceAll('.', '\\.');
    const before = `${segments.slice(0, i).join('/')}/`;
    const others = paths.filter((other) => other.startsWith(before)).map((other) => other.split('/')[i]);
    const words = others.filter((word) => word && !word.startsWith('{'));
    return words.length === 0 ? '[^/]+' : `(?!(?:${words.join('|')})(?:/|$))[^/]+`;
  });
  return new RegExp(`^${patterns.join('/')}$`);
}

let description: Promise<Description> | undefined;

/** The description that the servers of this process give of themselves. */
export function descriptionFrom(server: { http: string }): Promise<Description> {
  description ??= fetch(`${server.http}/openapi.json`)
    .then((response) => response.json())
    .then((document) => new Description(document))
    .catch((error: unknown) => {
      description = undefined;
      throw error;
    });
  return description;
}
