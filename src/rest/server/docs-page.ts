/** `/openapi.json`, the API's description, and `/docs`, a page that shows it. Both need nothing but this server. */
import { readFileSync } from 'node:fs';
import type { Route } from '../http/router.ts';
import { openApi } from '../openapi/document.ts';
import type { Operation } from '../openapi/operation.ts';
import { serverAbout } from './docs.ts';

/** The page loads nothing from elsewhere, sends nothing elsewhere, and stands in nobody's frame. */
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

/** These routes, and those that describe them all. The description is made when somebody asks for it first. */
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

/** A text that stays the same for as long as the server runs. */
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
        // A new version of the server has new ones, and is asked.
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
