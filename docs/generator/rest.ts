/** The REST routes, from the OpenAPI document of a running server. */
import { anchor, code, codes, fenced, paragraphs, table } from './markdown.ts';
import {
  answerTable,
  type Content,
  nameOf,
  type OpenApi,
  type Operation,
  parameterTable,
  type Response,
  requestTable,
  typeText,
} from './schemas.ts';

/** The RPC that does the same, below `leasehold.v1.`, or null where there is none. */
const rpcs: Readonly<Record<string, string | null>> = {
  submitJob: 'JobsService.SubmitJob',
  claimJobs: 'JobsService.ClaimJobs',
  listJobs: 'JobsService.ListJobs',
  getJob: 'JobsService.GetJob',
  updateJobStatus: 'JobsService.UpdateJobStatus',
  cancelJob: 'JobsService.CancelJob',
  retryJob: 'JobsService.RetryJob',
  listJobEvents: 'JobsService.ListJobEvents',
  listStreams: 'JobsService.ListStreams',
  listAttempts: 'LeasesService.ListLeases',
  retryDeadLetters: 'JobsService.RetryDeadLetters',
  requestLease: 'LeasesService.RequestLease',
  heartbeat: 'LeasesService.Heartbeat',
  releaseLease: 'LeasesService.ReleaseLease',
  getLease: 'LeasesService.GetLease',
  explainJob: 'StatsService.Explain',
  explainLease: 'StatsService.Explain',
  getCapacity: 'StatsService.GetCapacity',
  setCapacity: 'StatsService.SetCapacity',
  listCapacityChanges: 'StatsService.ListCapacityChanges',
  getSnapshot: 'StatsService.GetSnapshot',
  getTimeseries: 'StatsService.GetTimeseries',
  getQueue: 'StatsService.GetQueue',
  listWorkers: 'StatsService.ListWorkers',
  submitSystemJob: 'JobsService.SubmitJob',
  getSystemJob: 'JobsService.GetJob',
  acquireLease: 'LeasesService.AcquireLease',
  keepLease: 'LeasesService.Heartbeat',
  completeLease: 'LeasesService.ReleaseLease',
  failLease: 'LeasesService.ReleaseLease',
  workerClaim: 'LeasesService.AcquireLease',
  workerHeartbeat: 'LeasesService.Heartbeat',
  workerComplete: 'LeasesService.ReleaseLease',
  workerFail: 'LeasesService.ReleaseLease',
  acquireFiles: 'FileLeasesService.AcquireFileLeases',
  releaseFiles: 'FileLeasesService.ReleaseFileLeases',
  heartbeatOwner: 'FileLeasesService.HeartbeatOwner',
  recordActivity: 'FileLeasesService.RecordActivity',
  stopOwner: 'FileLeasesService.StopOwner',
  endOwner: 'FileLeasesService.EndOwner',
  listFileLeases: 'FileLeasesService.ListFileLeases',
  listBlockers: 'FileLeasesService.ListBlockers',
  instructBlocker: 'FileLeasesService.InstructBlocker',
  whoAmI: 'KeysService.WhoAmI',
  listKeys: 'KeysService.ListKeys',
  createKey: 'KeysService.CreateKey',
  getKey: 'KeysService.GetKey',
  rotateKey: 'KeysService.RotateKey',
  revokeKey: 'KeysService.RevokeKey',
  listAuditEvents: 'KeysService.ListAuditEvents',
  listQuotas: 'QuotasService.ListQuotas',
  setQuota: 'QuotasService.SetQuota',
  beginSession: null,
  beginLogin: null,
  endLogin: null,
  getSession: null,
  endSession: null,
  getDiagnosis: 'StatsService.Diagnose',
  getHealth: 'grpc.health.v1.Health',
  getReadiness: 'grpc.health.v1.Health',
  getMetrics: null,
  getOpenApi: null,
  getDocs: null,
  getDocsIndex: null,
  getDocsScript: null,
  getDocsStyle: null,
};

/** Errors that most routes may answer with. They are in the reference of errors, and not repeated. */
const common = new Set([
  'invalid_request',
  'overloaded',
  'unavailable',
  'deadline_exceeded',
  'internal',
  'payload_too_large',
  'unsupported_media_type',
  'host_not_allowed',
  'origin_not_allowed',
  'unauthenticated',
  'permission_denied',
]);

interface Named {
  title: string;
  operation: Operation;
}

const isError = (status: string): boolean => Number(status) >= 400;

/** An answer that is no error. `/readyz` answers 503 with a body of its own. */
const isDescribed = ([status, { $ref, content }]: [string, Response]): boolean =>
  !isError(status) || ($ref === undefined && errorCodesIn({ ...(content && { content }) }).length === 0);

function errorCodesIn({ content }: Response): string[] {
  const properties = content?.['application/json']?.schema?.properties;
  return (properties?.code?.enum ?? []).filter((name) => typeof name === 'string');
}

function examplesOf(content: Content | undefined): string[] {
  const values = content?.examples
    ? Object.values(content.examples).map(({ value }) => value)
    : content?.example === undefined
      ? []
      : [content.example];
  return values.map((value) => fenced('json', JSON.stringify(value, undefined, 2)));
}

class Reference {
  readonly #document: OpenApi;
  readonly #routes: readonly Named[];

  constructor(document: OpenApi) {
    this.#document = document;
    this.#routes = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.entries(operations).map(([method, operation]) => ({
        title: code(`${method.toUpperCase()} ${path}`),
        operation,
      })),
    );
  }

  overview(): string {
    return table(
      ['Route', 'RPC', 'What it does'],
      this.#routes.map(({ title, operation: { operationId, summary } }) => {
        const rpc = rpcs[operationId];
        if (rpc === undefined) throw new Error(`docs/generator/rest.ts names no RPC for ${operationId}`);
        return [`[${title}](#${anchor(title)})`, rpc === null ? '' : code(rpc), summary];
      }),
    );
  }

  details(): string {
    const parts = this.#document.tags.map(({ name, description }) =>
      paragraphs(
        `## Routes: ${name}`,
        description,
        ...this.#routes
          .filter(({ operation }) => operation.tags.includes(name))
          .map((route) => this.#route(route)),
      ),
    );
    return paragraphs(...parts);
  }

  schemas(): string {
    const entries = Object.entries(this.#document.components.schemas);
    return paragraphs(
      ...entries.map(([name, schema]) => paragraphs(`### ${name}`, schema.description, answerTable(schema))),
    );
  }

  #route({ title, operation }: Named): string {
    const { summary, description, parameters = [], requestBody, responses } = operation;
    const asked = requestBody?.content['application/json'];
    return paragraphs(
      `### ${title}`,
      `${summary}.${description === undefined ? '' : ` ${description}`}`,
      parameters.length > 0 ? parameterTable(parameters) : undefined,
      asked?.schema && paragraphs(`Request body. ${requestBody?.description}`, requestTable(asked.schema)),
      ...examplesOf(asked),
      ...Object.entries(responses)
        .filter(isDescribed)
        .map(([status, answer]) => this.#answer(status, answer)),
      this.#errors(responses),
    );
  }

  #answer(status: string, { description, content = {} }: Response): string {
    const [[type, answered] = []] = Object.entries(content);
    const schema = answered?.schema;
    const kind =
      schema === undefined
        ? ''
        : type === 'application/json'
          ? `: ${this.#kind(answered as Content)}`
          : `: ${type}`;
    const fields = type === 'application/json' && schema?.properties ? answerTable(schema) : undefined;
    return paragraphs(
      `Response ${code(status)}${kind}. ${description}`,
      fields,
      ...examplesOf(answered).slice(0, 3),
    );
  }

  #kind({ schema = {} }: Content): string {
    return schema.properties ? 'JSON' : typeText(schema);
  }

  #errors(responses: Operation['responses']): string | undefined {
    const own = Object.entries(responses)
      .filter(([status]) => isError(status))
      .flatMap(([status, response]) =>
        errorCodesIn(response.$ref ? this.#response(response.$ref) : response)
          .filter((name) => !common.has(name))
          .map((name) => `${code(name)} (${status})`),
      );
    return own.length === 0 ? undefined : `Errors: ${own.join(', ')}.`;
  }

  #response(ref: string): Response {
    const found = this.#document.components.responses[nameOf(ref)];
    if (!found) throw new Error(`the document has no ${ref}`);
    return found;
  }
}

/** Errors that are listed once for all routes. */
export const commonErrors = (): string => codes([...common]);

export function restSections(document: OpenApi): Record<string, string> {
  const reference = new Reference(document);
  return {
    'rest-overview': reference.overview(),
    'rest-common-errors': commonErrors(),
    'rest-routes': reference.details(),
    'rest-schemas': reference.schemas(),
  };
}
