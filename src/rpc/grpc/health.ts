/**
 * `grpc.health.v1.Health`: whether the server, and each of its services, is served now. Orchestrators call it
 * without a credential, so nothing that a caller sends is kept.
 *
 * Guarantees: the names of other services are not kept and not repeated in an answer. A watch of such a
 * service says `SERVICE_UNKNOWN` and stays open. The number of open watches is limited. `boundMessages` keeps
 * requests to `healthBytesMax`.
 */
import { create, type DescMethod, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  Metadata,
  type MethodDefinition,
  type Server,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import {
  Health,
  type HealthCheckRequest,
  type HealthCheckResponse,
  type HealthListResponse,
  HealthCheckResponse_ServingStatus as Serving,
} from '../../../gen/grpc/health/v1/health_pb.js';

/** The longest request for health. */
export const healthBytesMax = 1_024;
/** Open watches of all callers together. Each costs a stream, and a message when the readiness changes. */
const watchesMax = 1_000;

export const healthPath = '/grpc.health.v1.Health/';

type Watch = ServerWritableStream<HealthCheckRequest, { status: Serving }>;

const refusal = (code: status, details: string) => ({ code, details, metadata: new Metadata() });

export class HealthService {
  readonly #names: ReadonlySet<string>;
  readonly #watches = new Set<Watch>();
  #status = Serving.NOT_SERVING;

  /** `services` are the full names of what is served; the empty name stands for the whole server. */
  constructor(services: readonly string[]) {
    this.#names = new Set(['', ...services]);
  }

  setReady(isReady: boolean): void {
    this.#status = isReady ? Serving.SERVING : Serving.NOT_SERVING;
    for (const watch of this.#watches)
      if (this.#names.has(watch.request.service)) watch.write({ status: this.#status });
  }

  addToServer(server: Server): void {
    const { check, list, watch } = Health.method;
    server.addService(
      { check: definitionOf(check), list: definitionOf(list), watch: definitionOf(watch) },
      {
        check: (
          { request }: ServerUnaryCall<HealthCheckRequest, unknown>,
          callback: sendUnaryData<unknown>,
        ) =>
          this.#names.has(request.service)
            ? callback(null, { status: this.#status })
            : callback(refusal(status.NOT_FOUND, 'there is no such service')),
        list: (_: unknown, callback: sendUnaryData<unknown>) => callback(null, this.#list()),
        watch: (call: Watch) => this.#watch(call),
      },
    );
  }

  #list(): Pick<HealthListResponse, 'statuses'> {
    const statuses: Record<string, HealthCheckResponse> = {};
    for (const name of this.#names)
      statuses[name] = create(Health.method.check.output, { status: this.#status });
    return { statuses };
  }

  #watch(call: Watch): void {
    if (this.#watches.size >= watchesMax) {
      call.emit('error', refusal(status.RESOURCE_EXHAUSTED, 'too many watches of the health are open'));
      return;
    }
    this.#watches.add(call);
    call.on('cancelled', () => this.#watches.delete(call));
    const isKnown = this.#names.has(call.request.service);
    call.write({ status: isKnown ? this.#status : Serving.SERVICE_UNKNOWN });
  }
}

function definitionOf(method: DescMethod): MethodDefinition<unknown, unknown> {
  return {
    path: `${healthPath}${method.name}`,
    requestStream: false,
    responseStream: method.methodKind === 'server_streaming',
    requestDeserialize: (bytes) => fromBinary(method.input, bytes),
    responseSerialize: (message) =>
      Buffer.from(toBinary(method.output, create(method.output, message as Record<string, unknown>))),
    requestSerialize: () => Buffer.alloc(0),
    responseDeserialize: () => undefined,
  };
}
