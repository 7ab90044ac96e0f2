import { settingsHelp } from '../../config.ts';
import { inOneLine, type Log } from '../../lib/log.ts';
import { postureText } from '../../posture.ts';
import type { RunningServer } from '../../server.ts';
import type { Command } from '../main.ts';
import { settingFlags } from '../support/args.ts';
import { prepare } from '../support/load-config.ts';
import { releaseStartupHeap } from '../support/release-startup-heap.ts';
import { printToStderr } from '../support/stderr.ts';

export const serveCommand: Command = {
  name: 'serve',
  flags: settingFlags,
  help: () => `Usage: leasehold serve [settings]

Serves gRPC and HTTP until SIGTERM or SIGINT, then finishes the open calls and
exits. The line 'leasehold ready' on standard output names both addresses.

Each setting is an environment variable and a flag. The flag wins, and an empty
value counts as unset. Flags may also be written in full, as in
--leasehold-http-addr.

${settingsHelp()}
`,
  async run(args) {
    const prepared = prepare(args, this.help);
    if (!prepared) return 0;
    const { config, log } = prepared;
    const stop = stopSignal();
    let server: RunningServer;
    try {
      // The database opens while the APIs are being loaded; both take a good part of a second.
      const opening = import('../../store/open.ts').then(({ openConfigured }) => openConfigured(config, log));
      opening.catch(() => {});
      const { startServer } = await import('../../server.ts');
      const givenUp = new AbortController();
      void stop.then(() => givenUp.abort());
      const started = startServer(config, log, opening, givenUp.signal);
      // A stop signal before the server is ready does not wait for the start, not even for another server's
      // migration.
      const early = await Promise.race([started, stop]);
      if (typeof early === 'string') return await stopEarly(early, started, log);
      server = early;
    } catch (error) {
      printToStderr(inOneLine(error));
      log.debug('could not start', { error });
      return 1;
    }
    const { http, grpc, metricsAddress, database, posture } = server;
    const further = metricsAddress && { metrics: name(metricsAddress) };
    log.info('ready', {
      http: name(http),
      grpc: name(grpc),
      ...further,
      database,
      posture: postureText(posture),
    });
    process.stdout.write(
      `leasehold ready: ${posture.hasTls ? 'https' : 'http'}://${name(http)} (REST, Connect, gRPC-Web), grpc ${name(grpc)}, database: ${database}, ${postureText(posture)}\n`,
    );
    setImmediate(releaseStartupHeap);
    const reason = await Promise.race([stop, server.lost]);
    if (reason instanceof Error) log.error('the database is lost; stopping', { error: reason });
    else log.info('stopping', { signal: reason });
    await server.stop();
    log.info('stopped');
    return reason instanceof Error ? 1 : 0;
  },
};

/** Gives an aborted start up to 5 s to finish. */
async function stopEarly(signal: string, started: Promise<RunningServer>, log: Log): Promise<number> {
  log.info('stopping before being ready', { signal });
  const timer = setTimeout(() => process.exit(0), 5_000);
  await started.then(
    (server) => server.stop(),
    () => {},
  );
  clearTimeout(timer);
  log.info('stopped');
  return 0;
}

const stopSignals = ['SIGTERM', 'SIGINT'] as const;

/**
 * A signal within this time after the first one belongs to the same request. Ctrl-C reaches the server from
 * the terminal, and a moment later again from npm, which forwards the signal it received.
 */
const sameWishMs = 500;

/**
 * Settles with the first stop signal. After `sameWishMs` the handlers are removed, so that another signal
 * ends the process at once.
 */
function stopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const heard = (signal: NodeJS.Signals) => {
      resolve(signal);
      setTimeout(() => {
        for (const each of stopSignals) process.off(each, heard);
      }, sameWishMs).unref();
    };
    for (const each of stopSignals) process.on(each, heard);
  });
}

const name = ({ host, port }: { host: string; port: number }): string =>
  host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
