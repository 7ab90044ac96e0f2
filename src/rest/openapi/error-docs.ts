/** Documentation of the errors, for the API's description. */
import Type from 'typebox';
import { errorCodes } from '../../domain/errors.ts';
import type { ErrorBody } from '../http/errors.ts';
import { entity, oneOf, uuid, word } from './schema-types.ts';

export const ErrorRecord = entity('Error', 'What every error says of itself.', {
  detail: word('What is wrong, in words.'),
  code: oneOf([...errorCodes, 'internal'], 'What is wrong, as a word that stays the same.'),
  field: Type.Optional(word('The field of the request that is at fault.')),
  job_id: Type.Optional(uuid('The first job, where another one has its key.')),
});

/** The meaning of each code, and an example. */
export const errorDocs: Readonly<
  Record<ErrorBody['code'], { means: string; example: Omit<ErrorBody, 'code'> }>
> = {
  invalid_request: {
    means: 'The request is not what was expected; `field` says where.',
    example: { detail: 'limit: must be a whole number, not "many"', field: 'limit' },
  },
  job_not_found: {
    means: 'There is no such job.',
    example: { detail: 'there is no job "0b7e6c9a-3f1d-4c6e-9a55-2f1f4a1f0c01"' },
  },
  lease_not_found: {
    means: 'There is no such lease.',
    example: { detail: 'there is no lease "5d2a8f34-7c1b-4e0d-8b6a-9c3e7d5f1a02"' },
  },
  owner_not_found: { means: 'There is no such owner.', example: { detail: 'there is no owner "ann"' } },
  contention_not_found: {
    means: 'There is no such contention.',
    example: { detail: 'there is no contention "9e8d7c6b-5a49-4838-a726-1504f3e2d1c0"' },
  },
  worker_mismatch: {
    means: 'It is with another worker.',
    example: { detail: 'the lease is with another worker' },
  },
  token_mismatch: {
    means: 'The token is not that of the lease.',
    example: { detail: "lease_token is not this lease's" },
  },
  job_mismatch: {
    means: 'The lease or the job is another than the request says.',
    example: { detail: 'the lease is for job 0b7e6c9a-3f1d-4c6e-9a55-2f1f4a1f0c01' },
  },
  message_mismatch: {
    means: 'The message is not the one of the attempt: do not acknowledge it. Nothing was written.',
    example: { detail: 'stream: the attempt is not of stream "mails"', field: 'stream' },
  },
  job_not_claimed: {
    means: 'The job is not claimed, or not any more.',
    example: { detail: 'the job is QUEUED; claim it first' },
  },
  illegal_transition: {
    means: 'That may not be done to it in its present state.',
    example: { detail: 'a job that is DONE cannot become CANCELED' },
  },
  lease_not_active: {
    means: 'The lease is over: stop the work. Nothing was written.',
    example: { detail: 'lease 5d2a8f34-7c1b-4e0d-8b6a-9c3e7d5f1a02 expired at 2025-12-28T20:16:55.000Z' },
  },
  owner_not_alive: {
    means: 'The owner is over and holds nothing.',
    example: {
      detail:
        'owner "ann" ended at 2026-02-06T20:10:50.000Z; it holds nothing, and has to acquire its files anew',
    },
  },
  duplicate_request: {
    means: 'There is a job with this key already; `job_id` says which.',
    example: {
      detail: 'client_request_id "order-17" was used before, for job 0b7e6c9a-3f1d-4c6e-9a55-2f1f4a1f0c01',
      field: 'client_request_id',
      job_id: '0b7e6c9a-3f1d-4c6e-9a55-2f1f4a1f0c01',
    },
  },
  payload_too_large: {
    means: 'The body, or what is to be kept of it, is too large.',
    example: { detail: 'body: must not be larger than 1048576 bytes', field: 'body' },
  },
  unsupported_media_type: {
    means: 'The body is not said to be JSON in UTF-8, or is compressed in another way than gzip.',
    example: { detail: 'content-type: must be application/json, in UTF-8' },
  },
  host_not_allowed: {
    means: 'The host that the request names is not one of this server.',
    example: {
      detail: 'host "evil.test" is not allowed; a name that clients use must be in LEASEHOLD_ALLOWED_HOSTS',
      field: 'host',
    },
  },
  origin_not_allowed: {
    means: 'A web page of another site must not write here.',
    example: {
      detail: 'a web page of origin "https://evil.test" must not write here',
      field: 'origin',
    },
  },
  unauthenticated: {
    means: 'The request carries no valid credential. The answer does not say which part is wrong.',
    example: { detail: 'a valid credential is needed: authorization: Bearer <key or token>' },
  },
  permission_denied: {
    means: 'The credential is valid, and its roles or scopes do not reach this.',
    example: {
      detail: 'addon_id: is outside the scopes of the credential',
      field: 'addon_id',
    },
  },
  rate_limited: {
    means: 'The credential sends more than its rate. Nothing was done; ask again later.',
    example: { detail: 'more than 100 submissions a second' },
  },
  quota_exceeded: {
    means: 'The request would exceed a quota. Nothing was done.',
    example: { detail: 'max_queued: 10,000 of 10,000 jobs wait' },
  },
  overloaded: {
    means: 'Too many are asking, or the request arrives too slowly; nothing was done. Ask again later.',
    example: { detail: 'too many calls are waiting; try again later' },
  },
  unavailable: {
    means: 'It cannot be served now. Ask again.',
    example: { detail: 'the server is shutting down' },
  },
  deadline_exceeded: { means: 'It took too long.', example: { detail: 'the database took too long' } },
  canceled: { means: 'The caller has gone.', example: { detail: 'the caller has gone' } },
  not_found: { means: 'There is no such path.', example: { detail: 'there is no GET /nowhere' } },
  method_not_allowed: {
    means: 'The path is not for this method.',
    example: { detail: 'DELETE is not for /api/scheduler/jobs; it takes GET' },
  },
  internal: {
    means: 'A mistake of the server, which it has logged.',
    example: { detail: 'something went wrong on the server' },
  },
};
