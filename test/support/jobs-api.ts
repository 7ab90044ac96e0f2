/** How tests speak to the queue contract's Jobs API, and what they hold every answer to. */
import { expect } from 'chai';
import { descriptionFrom } from './description.ts';
import type { TestServer } from './server.ts';

// biome-ignore lint/suspicious/noExplicitAny: what a server answers is unknown until it has been looked at
export type Body = any;

export interface Answer {
  status: number;
  headers: Headers;
  /** The body as it came. */
  text: string;
  /** The body as JSON; undefined where there is none. */
  body: Body;
}

/** The paths of the contract, below the server's address. */
export const jobsPath = '/api/scheduler/jobs';

/** A well-formed id that no job and no lease has. */
export const nowhere = '00000000-0000-4000-8000-000000000000';

/** Asks, and holds the answer to the API's description. */
export async function ask(server: TestServer, path: string, init: RequestInit = {}): Promise<Answer> {
  const url = `${server.http}${path}`;
  const response = await fetch(url, init);
  const text = await response.text();
  const { status, headers } = response;
  const answer = { status, headers, text, body: text === '' ? undefined : JSON.parse(text) };
  const description = await descriptionFrom(server);
  const { method = 'GET', body } = init;
  const { pathname } = new URL(url);
  description.checkAnswer(method, pathname, {
    status,
    type: headers.get('content-type') ?? '',
    body: answer.body,
  });
  if (response.ok && typeof body === 'string' && body !== '')
    description.checkBody(method, pathname, JSON.parse(body));
  return answer;
}

export const get = (server: TestServer, path: string): Promise<Answer> => ask(server, path);

/** Sends JSON: text goes out verbatim, everything else as JSON. */
export const post = (server: TestServer, path: string, body: unknown): Promise<Answer> =>
  ask(server, path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });

let addons = 0;

/** A submitter that no other test has: its jobs are claimed and listed by nobody else. */
export const newAddon = (): string => `addon-${++addons}`;

/** Submits a job that has all it needs, and whatever else is given. */
export async function submit(server: TestServer, fields: object): Promise<Body> {
  const job = { addon_id: newAddon(), job_type: 'load30', cost_units: 30, ...fields };
  const { status, body } = await post(server, `${jobsPath}/submit`, job);
  expect(status, JSON.stringify(body)).to.equal(201);
  return body.job;
}

/** Claims one job of a submitter, which has to be there. */
export async function claim(server: TestServer, addonId: string, fields: object = {}): Promise<Body> {
  const { status, body } = await post(server, `${jobsPath}/claim`, {
    addon_id: addonId,
    worker_id: 'worker-1',
    ...fields,
  });
  expect(status, JSON.stringify(body)).to.equal(200);
  return body.job;
}

/** A job that somebody has claimed. */
export async function claimedJob(server: TestServer, fields: object = {}): Promise<Body> {
  const job = await submit(server, fields);
  return claim(server, job.addon_id);
}

export const read = async (server: TestServer, jobId: string): Promise<Body> =>
  (await get(server, `${jobsPath}/${jobId}`)).body;

export const eventsOf = async (server: TestServer, jobId: string): Promise<Body[]> =>
  (await get(server, `${jobsPath}/${jobId}/events`)).body.events;

export const status = (server: TestServer, jobId: string, body: unknown): Promise<Answer> =>
  post(server, `${jobsPath}/${jobId}/status`, body);

export const cancel = (server: TestServer, jobId: string, body: unknown = {}): Promise<Answer> =>
  post(server, `${jobsPath}/${jobId}/cancel`, body);

export const retry = (server: TestServer, jobId: string, body: unknown = {}): Promise<Answer> =>
  post(server, `${jobsPath}/${jobId}/retry`, body);

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

export const expectUuid = (value: unknown): void => {
  expect(value).to.be.a('string').and.to.match(uuid);
};

/** ISO-8601, UTC, and a moment ago. */
export function expectTime(value: unknown, { withinMs = 60_000, of = Date.now() } = {}): void {
  expect(value)
    .to.be.a('string')
    .and.to.match(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
  expect(Math.abs(Date.parse(value as string) - of)).to.be.below(withinMs);
}

/** All the fields that the contract gives a JobIntent. */
export const jobIntentFields = [
  'job_id',
  'addon_id',
  'job_type',
  'priority',
  'cost_units',
  'constraints',
  'payload',
  'state',
  'created_at',
  'updated_at',
  'claimed_by',
  'claim_expires_at',
  'lease_id',
  'attempts',
  'next_retry_at',
];

/** All the fields that the contract gives a JobResult. */
export const jobResultFields = [
  'job_id',
  'status',
  'result_data',
  'error',
  'started_at',
  'finished_at',
  'attempts',
];

/** The contract's fields of an object, whatever else it has. */
export const only = (object: Body, fields: readonly string[]): Body =>
  Object.fromEntries(fields.filter((field) => field in object).map((field) => [field, object[field]]));

/** Compares the contract's part of a JobIntent, its times aside, which are checked for what they are. */
export function expectJobIntent(job: Body, expected: Body): void {
  expect(job).to.include.all.keys(...jobIntentFields);
  expectUuid(job.job_id);
  expectTime(job.created_at);
  expectTime(job.updated_at);
  const { job_id, created_at, updated_at } = job;
  expect(only(job, jobIntentFields)).to.deep.equal({ job_id, created_at, updated_at, ...expected });
}

/** An error in the contract's shape, with what this server adds to it. */
export function expectError(
  answer: Answer,
  expected: { status: number; code: string; field?: string },
): void {
  const { status, body, headers, text } = answer;
  expect(status, text).to.equal(expected.status);
  expect(headers.get('content-type')).to.match(/^application\/json/);
  expect(body.detail, text).to.be.a('string').and.not.to.equal('');
  expect(body.code, text).to.equal(expected.code);
  if (expected.field === undefined) return;
  expect(body.field, text).to.equal(expected.field);
  expect(body.detail, text).to.include(expected.field);
}

/** The fields of a job of `submit`, and those that a test expects beside them. */
export const plainJob = (fields: object): object => ({
  job_type: 'load30',
  priority: 'NORMAL',
  cost_units: 30,
  constraints: {},
  payload: {},
  claimed_by: null,
  claim_expires_at: null,
  lease_id: null,
  attempts: 0,
  next_retry_at: null,
  ...fields,
});
