/** Every attribute of spans: OpenTelemetry's semantic conventions, and below them this server's own. */
export const spanAttributes = {
  rpcSystem: 'rpc.system.name',
  rpcMethod: 'rpc.method',
  rpcStatus: 'rpc.status_code',
  httpMethod: 'http.request.method',
  httpRoute: 'http.route',
  httpStatus: 'http.response.status_code',
  dbSystem: 'db.system.name',
  dbOperation: 'db.operation.name',
  dbTable: 'db.collection.name',
  batchCalls: 'leasehold.batch.calls',
  batchWeight: 'leasehold.batch.weight',
  job_id: 'leasehold.job_id',
  lease_id: 'leasehold.lease_id',
  worker_id: 'leasehold.worker_id',
} as const;
