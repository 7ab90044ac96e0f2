/** Keys, the audit, and the caller's own identity. */
import { ListAudit } from '../../domain/requests/access.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import { fromQuery } from '../http/query.ts';
import type { RestRequest, Route } from '../http/router.ts';
import { accessAbout } from './docs.ts';
import { auditEventBody, identityBody, keyBody } from './schemas.ts';

const base = '/api/access';

export const accessRoutes = ({ keys }: Engine): Route[] => [
  {
    method: 'GET',
    path: `${base}/whoami`,
    about: accessAbout.whoAmI,
    handle: async ({ caller }) => ({ status: 200, body: identityBody(caller.principal) }),
  },
  {
    method: 'GET',
    path: `${base}/keys`,
    about: accessAbout.listKeys,
    async handle({ caller }) {
      return { status: 200, body: { keys: (await keys.list(caller)).map(keyBody) } };
    },
  },
  {
    method: 'POST',
    path: `${base}/keys`,
    about: accessAbout.createKey,
    async handle({ body, caller }) {
      const { key, text } = await keys.create(parse.createKey(body), caller);
      return { status: 201, body: { key: keyBody(key), text } };
    },
  },
  {
    method: 'GET',
    path: `${base}/keys/{key_id}`,
    about: accessAbout.getKey,
    async handle({ path, caller }) {
      return { status: 200, body: { key: keyBody(await keys.get(keyId(path), caller)) } };
    },
  },
  {
    method: 'POST',
    path: `${base}/keys/{key_id}/rotate`,
    about: accessAbout.rotateKey,
    async handle({ path, body, caller }) {
      const { key, text } = await keys.rotate(keyId(path), parse.rotateKey(body), caller);
      return { status: 200, body: { key: keyBody(key), text } };
    },
  },
  {
    method: 'POST',
    path: `${base}/keys/{key_id}/revoke`,
    about: accessAbout.revokeKey,
    async handle({ path, caller }) {
      return { status: 200, body: { key: keyBody(await keys.revoke(keyId(path), caller)) } };
    },
  },
  {
    method: 'GET',
    path: `${base}/audit`,
    about: accessAbout.listAuditEvents,
    async handle({ query, caller }) {
      const command = fromQuery(ListAudit, parse.listAudit, query);
      const { items, nextCursor } = await keys.audit(command, caller);
      return { status: 200, body: { events: items.map(auditEventBody), next_cursor: nextCursor } };
    },
  },
];

const keyId = (path: RestRequest['path']): string => path.key_id ?? '';
