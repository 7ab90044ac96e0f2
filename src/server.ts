/**
 * One server: a database, the engine on it, and the APIs in front. `startServer` returns when it is ready to
 * serve; `stop` refuses new calls, finishes those in flight, and closes the database last.
 */
import type { DescService } from '@bufbuild/protobuf';
import { FileLeasesService } from '../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../gen/leasehold/v1/jobs_pb.js';
import { KeysService } from '../gen/leasehold/v1/keys_pb.js';
import { LeasesService } from '../gen/leasehold/v1/leases_pb.js';
import { QuotasService } from '../gen/leasehold/v1/quotas_pb.js';
import { StatsService } from '../gen/leasehold/v1/stats_pb.js';
import type { Address, Config } from './config.ts';
import { recordInsecureStart } from './engine/access/audit/insecure-start.ts';
import { type AccessParts, openAccess } from './engine/access/open-access.ts';
import { Doctor } from './engine/doctor/doctor.ts';
import { Engine } from './engine/engine.ts';
import { HealthMonitor } from './engine/maintenance/health-monitor.ts';
import { OutageLog } from './engine/maintenance/outage-log.ts';
import { withTimeout } from './lib/async/with-timeout.ts';
import { receiveBudget } from './lib/http/receive-budget.ts';
import type { Log } from './lib/log.ts';
import { Connections } from './lib/net/connections.ts';
import { TlsFiles } from './lib/net/tls-files.ts';
import { TrustedProxies } from './lib/net/trusted-proxies.ts';
import { type Posture, postureOf, publicHostOf } from './posture.ts';
import { loginRoutes } from './rest/access/login-routes.ts';
import { accessRoutes } from './rest/access/routes.ts';
import { sessionRoutes } from './rest/access/session-routes.ts';
import { doctorRoutes } from './rest/doctor/routes.ts';
import { explainRoutes } from './rest/explain/routes.ts';
import { fileRoutes } from './rest/files/routes.ts';
import { HttpServer } from './rest/http/server.ts';
import { SessionCookies } from './rest/http/session-cookies.ts';
import { queueRoutes } from './rest/jobs/routes.ts';
import { queueLeaseRoutes } from './rest/leases/routes.ts';
import { queueViewRoutes } from './rest/queue/routes.ts';
import { quotaRoutes } from './rest/quotas/routes.ts';
import { withDocs } from './rest/server/docs-page.ts';
import { healthRoutes } from './rest/server/health.ts';
import { metricsRoutes } from './rest/server/metrics.ts';
import { statsRoutes } from './rest/stats/routes.ts';
import { streamRoutes } from './rest/streams/routes.ts';
import { systemRoutes } from './rest/system/routes.ts';
import { workerRoutes } from './rest/worker/routes.ts';
import { workerListRoutes } from './rest/workers/routes.ts';
import { keysImplementation } from './rpc/access/service.ts';
import { createConnectHandler } from './rpc/connect/handler.ts';
import { filesImplementation } from './rpc/files/service.ts';
import { createGrpcServer } from './rpc/grpc/server.ts';
import { streamHeartbeats } from './rpc/heartbeat-stream/session.ts';
import type { Binding, Implementation } from './rpc/implementation.ts';
import { jobsImplementation } from './rpc/jobs/service.ts';
import { leasesMethods } from './rpc/leases/service.ts';
import { quotasImplementation } from './rpc/quotas/service.ts';
import { statsImplementation } from './rpc/stats/service.ts';
import { streamWork } from './rpc/work-stream/session.ts';
import { noopChannel, PostgresChannel } from './store/connection/notify-channel.ts';
import type { Database } from './store/database.ts';
import { DatabaseWait } from './store/database-wait.ts';
import { migrate } from './store/migrate.ts';
import { openConfigured } from './store/open.ts';
import { declareAccess } from './telemetry/gauges/access-gauges.ts';
import { declareConnections } from './telemetry/gauges/connection-gauges.ts';
import { QueueWatch } from './telemetry/gauges/queue-watch.ts';
import { ServerGauges } from './telemetry/gauges/server-gauges.ts';
import { Metrics } from './telemetry/metrics.ts';
import { ProcessMetrics } from './telemetry/process-metrics.ts';
import { openTracing, type Tracing } from './telemetry/tracing.ts';
import { databaseTransport } from './transport/database-transport.ts';
import type { Transport } from './transport/transport.ts';

/** How long calls that are in flight may take to finish when the server stops. */
const shutdownMs = 5_000;
/** How long the engine and the database may take to close after that. */
const closingMs = 2_000;
/** How long a scrape of the metrics may wait for a database that hangs. */
const scrapeMs = 900;
/** The port for metrics has connections of its own, so that probes reach it when the others are full. */
const metricsConnections = { max: 200, maxPerAddress: 100 };

export interface RunningServer {
  http: Address;
  grpc: Address;
  /** The port for metrics and probes alone, if there is one. */
  metricsAddress: Address | undefined;
  /** A description of its database. */
  database: string;
  /** The metrics of the server. */
  metrics: Metrics;
  posture: Posture;
  /** Settles with the reason if the server cannot continue and must be stopped. */
  lost: Promise<Error>;
  stop(): Promise<void>;
}

/** Starts a server. The database may already be opening while the server's modules are still being loaded. */
export async function startServer(
  config: Config,
  log: Log,
  opening: Promise<Database> = openConfigured(config, log),
  /** Aborts the start while it waits for the database. */
  givenUp?: AbortSignal,
  /** The budget for the unfinished requests of all APIs. */
  receiving = receiveBudget,
): Promise<RunningServer> {
  const secured = Promise.all([postureOf(config), openTls(config, log)]);
  secured.catch(() => {});
  const database = await opening;
  const wait = new DatabaseWait({ waitS: config.databaseWaitS, log, signal: givenUp });
  let tracing: Tracing | undefined;
  let posture: Posture;
  let tls: TlsFiles | undefined;
  let access: AccessParts;
  try {
    [posture, tls] = await secured;
    tracing = await openTracing(config, process.env, log);
    const applied = await wait.run(() => migrate(database));
    if (applied.length > 0) log.info('the schema was brought up to date', { migrations: applied });
    access = await openAccess(config, database, log);
  } catch (error) {
    await database.close();
    throw error;
  }
  const health = new HealthMonitor(database);
  const serverLog = new OutageLog(log, health);
  const channel =
    config.databaseUrl === undefined ? noopChannel : new PostgresChannel(config.databaseUrl, serverLog);
  const metrics = new Metrics(tracing);
  database.meter = metrics.database();
  const transport = await openTransport(config, { database, metrics, log: serverLog });
  const engine = Engine.create({
    database,
    channel,
    transport,
    settings: config,
    metrics,
    log: serverLog,
    authenticator: access.authenticator,
  });
  const processFigures = new ProcessMetrics(metrics.registry, database.engine);
  const figures = new ServerGauges({
    registry: metrics.registry,
    engine,
    database,
    transport,
    isUp: () => withTimeout(health.runOnce(), scrapeMs, false),
    queue: new QueueWatch(database, config.capacityTotal),
    process: processFigures,
  });
  const doctor = new Doctor({
    database,
    transport,
    poolMax: config.poolMax,
    capacityTotal: config.capacityTotal,
    access: () => ({
      posture,
      certificate: tls ? { expiresAtMs: tls.expiresAtMs, isFailing: tls.isFailing } : null,
      usesKeys: access.keyRing !== undefined,
    }),
  });
  declareAccess(metrics.registry, { keys: () => access.keyRing?.keys, tls });
  const bindings = [
    bind(JobsService, jobsImplementation(engine)),
    bind(LeasesService, {
      ...leasesMethods(engine),
      ...streamHeartbeats(engine, metrics),
      ...streamWork(engine, metrics),
    }),
    bind(StatsService, statsImplementation(engine, doctor)),
    bind(FileLeasesService, filesImplementation(engine)),
    bind(KeysService, keysImplementation(engine)),
    bind(QuotasService, quotasImplementation(engine)),
  ];
  const cookies = new SessionCookies(tls !== undefined);
  let stopping = false;
  const proxies = new TrustedProxies(config.trustedProxies);
  const { maxConnections: max, maxConnectionsPerAddress: maxPerAddress } = config;
  const connections = new Connections({ max, maxPerAddress, proxies, log: serverLog });
  declareConnections(metrics.registry, connections);
  const bounds = { connections, idleS: config.connectionIdleS, ageS: config.connectionAgeS };
  const probes = healthRoutes(health, transport, () => stopping);
  const grpc = createGrpcServer({
    bindings,
    health,
    metrics,
    log: serverLog,
    receiving,
    authenticator: access.authenticator,
    tls,
    bounds,
    hasReflection: config.reflection === 'auto' ? !posture.isReachable : config.reflection === 'on',
  });
  const http = new HttpServer({
    routes: withDocs([
      ...probes,
      ...metricsRoutes(figures),
      ...queueRoutes(engine),
      ...queueLeaseRoutes(engine),
      ...statsRoutes(engine),
      ...explainRoutes(engine),
      ...doctorRoutes(doctor),
      ...systemRoutes(engine),
      ...workerRoutes(engine),
      ...streamRoutes(engine),
      ...workerListRoutes(engine),
      ...queueViewRoutes(engine),
      ...fileRoutes(engine),
      ...accessRoutes(engine),
      ...quotaRoutes(engine),
      ...sessionRoutes(access.sessions, cookies),
      ...loginRoutes(access.sessions, access.provider, cookies),
    ]),
    connect: createConnectHandler({
      bindings,
      metrics,
      log: serverLog,
      receiving,
      authenticator: access.authenticator,
      proxies,
    }),
    metrics,
    log: serverLog,
    guard: {
      boundHost: config.httpAddr.host,
      allowedHosts: [...config.allowedHosts, ...publicHostOf(config)],
      allowedOrigins: config.allowedOrigins,
    },
    receiving,
    authenticator: access.authenticator,
    tls,
    bounds,
    proxies,
  });
  const observed = new HttpServer({
    routes: [...probes, ...metricsRoutes(figures)],
    connect: () => false,
    metrics,
    log: serverLog,
    guard: { boundHost: config.metricsAddr?.host ?? '', allowedHosts: config.allowedHosts },
    receiving,
    bounds: { ...bounds, connections: new Connections({ ...metricsConnections, proxies, log: serverLog }) },
    name: { port: 'metrics', variable: 'LEASEHOLD_METRICS_ADDR' },
  });

  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopping = true;
    stopped ??= (async () => {
      // Waiting requests and watches would go on for ever, so they are ended. All other calls have their time
      // to finish.
      const faces = Promise.all([grpc.stop(shutdownMs), http.stop(shutdownMs), observed.stop(shutdownMs)]);
      await engine.drain();
      await faces;
      // Spans of work that is still running are lost, like those of calls that were cut off.
      const traced = tracing?.stop();
      // A database that hangs would delay the rest for ever; it has had its time with the calls in flight.
      const closing = async () => {
        await engine.stop();
        await access.stop();
        await tls?.stop();
        serverLog.stop();
        await health.stop();
        processFigures.stop();
        await database.close();
      };
      const closed = closing().then(
        () => true,
        (error: unknown) => {
          log.warn('the database could not be closed properly', { error });
          return true;
        },
      );
      if (!(await withTimeout(closed, closingMs, false)))
        log.warn('the database does not answer; leaving it as it is');
      await traced;
    })();
    return stopped;
  };

  try {
    await health.runOnce();
    health.start();
    await wait.run(() => engine.prepare());
    await recordInsecureStart(startOf(config, posture), database, log);
    engine.start();
    access.start();
    tls?.start();
    const [httpAddress, grpcAddress, metricsAddress] = await allOf([
      http.listen(config.httpAddr),
      grpc.listen(config.grpcAddr),
      config.metricsAddr && observed.listen(config.metricsAddr),
    ]);
    const words = database.engine === 'embedded' ? `embedded in ${config.dataDir}` : 'PostgreSQL';
    return {
      http: httpAddress,
      grpc: grpcAddress,
      metricsAddress,
      database: words,
      metrics,
      posture,
      lost: database.lost,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

const startOf = ({ insecure, httpAddr, grpcAddr }: Config, { auth, hasTls }: Posture) => ({
  insecure,
  auth,
  hasTls,
  addresses: [httpAddr, grpcAddr].map(({ host, port }) => `${host}:${port}`),
});

function openTls(config: Config, log: Log): Promise<TlsFiles | undefined> {
  const { tlsCertFile: certFile, tlsKeyFile: keyFile } = config;
  if (certFile === undefined || keyFile === undefined) return Promise.resolve(undefined);
  const { tlsClientCaFile: clientCaFile, tlsCrlFile: crlFile, tlsClientAuth: clientAuth } = config;
  const paths = { certFile, keyFile, clientCaFile, crlFile, clientAuth, minVersion: config.tlsMinVersion };
  return TlsFiles.open(paths, config.tlsReloadS * 1_000, log);
}

/** The transport of stream messages. The Redis client is loaded only if a Redis is configured. */
async function openTransport(
  { redisUrl }: Config,
  parts: { database: Database; metrics: Metrics; log: Log },
): Promise<Transport> {
  if (redisUrl === undefined) return databaseTransport;
  const { RedisTransport } = await import('./transport/redis/transport.ts');
  return new RedisTransport({ url: redisUrl, ...parts });
}

/**
 * A service with its implementation, whose types are checked here; the protocols take services of any kind.
 */
const bind = <Service extends DescService>(
  service: Service,
  implementation: Implementation<Service>,
): Binding => ({ service, implementation }) as unknown as Binding;

/** Waits for all, even if one fails: a server that is still starting could not be stopped. */
async function allOf<const Parts extends readonly unknown[]>(
  parts: Parts,
): Promise<{ -readonly [Name in keyof Parts]: Awaited<Parts[Name]> }> {
  await Promise.allSettled(parts);
  return Promise.all(parts);
}
