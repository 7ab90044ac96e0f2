/** `/openapi.json`, the API's description. */
import { openApi } from './openapi.ts';
import type { Route } from './router.ts';
import { serverAbout } from './server-about.ts';

/** These routes, and the one that describes them all. The description is made when somebody asks for it first. */
export function withDocs(routes: readonly Route[]): Route[] {
  let described: string | undefined;
  const all: Route[] = [
    ...routes,
    {
      method: 'GET',
      path: '/openapi.json',
      about: serverAbout.getOpenApi,
      async handle() {
        described ??= JSON.stringify(openApi(all));
        return {
          status: 200,
          // A new version of the server has a new one, and is asked.
          headers: { 'cache-control': 'no-cache' },
          body: described,
        };
      },
    },
  ];
  return all;
}
