/**
 * `/openapi.json`, the API's description, and `/docs`, a page that shows it. Both are served without external
 * resources.
 */
import { readFileSync } from 'node:fs';
import type { Route } from '../http/router.ts';
import { openApi } from '../openapi/document.ts';
import type { Operation } from '../openapi/operation.ts';
import { serverAbout } from './docs.ts';

/** The page loads nothing from other hosts, sends nothing to them, and cannot be framed. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Adds the routes that describe all routes. The description is built at its first request. */
export function withDocs(routes: readonly Route[]): Route[] {
  const described = once(() => JSON.stringify(openApi(all)));
  const all: Route[] = [
    ...routes,
    fixed('/openapi.json', serverAbout.getOpenApi, 'application/json; charset=utf-8', described),
    ...['/docs', '/docs/'].map((path) =>
      fixed(
        path,
        path === '/docs' ? serverAbout.getDocs : serverAbout.getDocsIndex,
        'text/html; charset=utf-8',
        fileText('docs.html'),
      ),
    ),
    fixed('/docs/docs.js', serverAbout.getDocsScript, 'text/javascript; charset=utf-8', fileText('docs.js')),
    fixed('/docs/docs.css', serverAbout.getDocsStyle, 'text/css; charset=utf-8', fileText('docs.css')),
  ];
  return all;
}

/** A text that does not change while the server runs. */
const fixed = (path: string, about: Operation, contentType: string, body: () => string): Route => ({
  method: 'GET',
  path,
  about,
  async handle() {
    return {
      status: 200,
      headers: {
        'content-type': contentType,
        'content-security-policy': policy,
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        // A newer server has other texts, so clients revalidate.
        'cache-control': 'no-cache',
      },
      body: body(),
    };
  },
});

const fileText = (name: string): (() => string) =>
  once(() => readFileSync(new URL(`../../../src/web/${name}`, import.meta.url), 'utf8'));

function once(make: () => string): () => string {
  let made: string | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
