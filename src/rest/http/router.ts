import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { DomainError } from '../../domain/errors.ts';
import type { JsonObject } from '../../domain/jobs/job.ts';
import { limits } from '../../domain/limits.ts';
import type { Caller } from '../../engine/context/engine-context.ts';
import type { ReceiveBudget } from '../../lib/http/receive-budget.ts';
import { readBody } from '../../lib/http/request-body.ts';
import type { RestResponse } from '../../lib/http/response.ts';
import type { Operation } from '../openapi/operation.ts';
import type { ErrorBody } from './errors.ts';
import { MethodNotAllowed } from './method-not-allowed.ts';
import { Query } from './query.ts';
import { unknownFields } from './unknown-fields.ts';

export interface RestRequest {
  /** The values of the path's `{names}`. */
  path: Readonly<Record<string, string>>;
  query: Query;
  body: JsonObject;
  headers: IncomingHttpHeaders;
  caller: Caller;
}

export interface Route {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** For example `/api/scheduler/jobs/{job_id}`. */
  path: string;
  /** The operation, for the API's description. */
  about: Operation;
  handle(request: RestRequest): Promise<RestResponse>;
  /** The most bytes of its body; the limit of a job where it is omitted. */
  bodyBytesMax?: number;
  /** Fields that the contract adds to an error, if any. */
  refusal?(error: ErrorBody): object;
}

export interface Match {
  route: Route;
  path: Record<string, string>;
}

interface Node {
  fixed: Map<string, Node>;
  named?: { name: string; node: Node };
  routes: Map<string, Route>;
}

/**
 * Finds the route of a request in a tree of path segments. A fixed segment has precedence over a named one.
 */
export class Router {
  readonly #root: Node = { fixed: new Map(), routes: new Map() };

  constructor(routes: readonly Route[]) {
    for (const route of routes) this.#add(route);
  }

  /** Undefined where no route has this path; throws where a route has the path, but not the method. */
  find(method: string, path: string): Match | undefined {
    let node: Node | undefined = this.#root;
    const values: Record<string, string> = {};
    for (const segment of path.split('/').slice(1)) {
      const fixed: Node | undefined = node.fixed.get(segment);
      const { named }: Node = node;
      if (!fixed && named && segment !== '') values[named.name] = decode(segment, named.name);
      node = fixed ?? (segment === '' ? undefined : named?.node);
      if (!node) return undefined;
    }
    const { routes } = node;
    if (routes.size === 0) return undefined;
    const route = routes.get(method) ?? (method === 'HEAD' ? routes.get('GET') : undefined);
    if (route) return { route, path: values };
    const allowed = [...routes.keys()].map((each) => (each === 'GET' ? 'GET, HEAD' : each)).join(', ');
    throw new MethodNotAllowed(`${method} is not for ${path}; it takes ${allowed}`, allowed);
  }

  #add(route: Route): void {
    let node = this.#root;
    for (const segment of route.path.split('/').slice(1)) {
      const name = /^\{(\w+)\}$/.exec(segment)?.[1];
      const child: Node =
        name === undefined ? (node.fixed.get(segment) ?? leaf()) : (node.named?.node ?? leaf());
      if (name === undefined) node.fixed.set(segment, child);
      else node.named = { name, node: child };
      node = child;
    }
    node.routes.set(route.method, route);
  }
}

const leaf = (): Node => ({ fixed: new Map(), routes: new Map() });

function decode(segment: string, name: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    throw new DomainError('invalid_request', `${name}: is not properly percent-encoded`, {
      field: name,
      cause,
    });
  }
}

/** Reads the parts of the request that the route needs, and calls the route. */
export async function serve(
  { route, path }: Match,
  request: IncomingMessage,
  caller: Caller,
  receiving: ReceiveBudget,
): Promise<RestResponse> {
  const url = request.url ?? '/';
  const mark = url.indexOf('?');
  const query = new Query(mark < 0 ? '' : url.slice(mark + 1));
  const bytesMax = route.bodyBytesMax ?? limits.jobBytes;
  const body = route.method === 'GET' ? {} : await readBody(request, bytesMax, receiving);
  const answer = await route.handle({ path, query, body, headers: request.headers, caller });
  const asked = route.about.body;
  const warnings = asked ? unknownFields(body, asked.schema) : [];
  if (warnings.length === 0 || typeof answer.body !== 'object') return answer;
  return { ...answer, body: { ...answer.body, warnings } };
}
