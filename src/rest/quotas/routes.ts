/** Quotas of tenants. */
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Route } from '../http/router.ts';
import { quotasAbout } from './docs.ts';
import { quotaBody } from './schemas.ts';

const path = '/api/access/quotas';

export const quotaRoutes = ({ quotas }: Engine): Route[] => [
  {
    method: 'GET',
    path,
    about: quotasAbout.listQuotas,
    async handle({ caller }) {
      return { status: 200, body: { quotas: (await quotas.list(caller)).map(quotaBody) } };
    },
  },
  {
    method: 'PUT',
    path,
    about: quotasAbout.setQuota,
    async handle({ body, caller }) {
      const found = await quotas.set(parse.setQuota(body), caller);
      return { status: 200, body: { quota: found && quotaBody(found) } };
    },
  },
];
