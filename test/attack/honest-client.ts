/**
 * The client that must not notice an attack: it holds leases, and sends a heartbeat for each of them once
 * a second, over one gRPC connection and one of HTTP. It measures how long each answer takes.
 */

import { Agent, request } from 'node:http';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';

const leaseCount = 50;
const ttlS = 10;
const everyMs = 1_000;
/** A beat that takes longer than this counts as lost. */
const patienceMs = 10_000;
const workerId = 'honest';

export interface Findings {
  /** Milliseconds of each answered heartbeat. */
  times: number[];
  /** Heartbeats that were not answered, and why. */
  failures: string[];
}

export class HonestClient {
  readonly #http: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #sessions: Http2SessionManager;
  readonly #leases;
  readonly #jobs;
  readonly #leaseIds: string[] = [];
  #findings: Findings = { times: [], failures: [] };
  #timer: NodeJS.Timeout | undefined;
  #next = 0;

  constructor(grpc: string, http: string) {
    this.#http = http;
    const baseUrl = `http://${grpc}`;
    this.#sessions = new Http2SessionManager(baseUrl);
    const transport = createGrpcTransport({
      baseUrl,
      sessionManager: this.#sessions,
      defaultTimeoutMs: patienceMs,
    });
    this.#leases = createClient(LeasesService, transport);
    this.#jobs = createClient(JobsService, transport);
  }

  async start(): Promise<void> {
    for (let i = 0; i < leaseCount; i++) {
      await this.#jobs.submitJob({ addonId: 'honest', jobType: 'kept', costUnits: 1 });
      const { outcome } = await this.#leases.acquireLease({ workerId, addonId: 'honest', ttlSec: ttlS });
      if (outcome.case !== 'granted') throw new Error(`a lease was not granted but ${outcome.case}`);
      this.#leaseIds.push(outcome.value.lease?.leaseId ?? '');
    }
    this.#timer = setInterval(() => void this.#beat(), everyMs / leaseCount);
  }

  /** What has happened since the last call. */
  take(): Findings {
    const found = this.#findings;
    this.#findings = { times: [], failures: [] };
    return found;
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#sessions.abort();
    this.#agent.destroy();
  }

  async #beat(): Promise<void> {
    const n = this.#next++;
    const leaseId = this.#leaseIds[n % leaseCount] as string;
    const beganAt = performance.now();
    try {
      // Each lease in turn over both APIs.
      if (Math.floor(n / leaseCount) % 2 === 0) await this.#leases.heartbeat({ leaseId, workerId });
      else await this.#restBeat(leaseId);
      this.#findings.times.push(performance.now() - beganAt);
    } catch (error) {
      this.#findings.failures.push(error instanceof Error ? error.message : String(error));
    }
  }

  #restBeat(leaseId: string): Promise<void> {
    const body = JSON.stringify({ worker_id: workerId });
    return new Promise((resolve, reject) => {
      const sent = request(
        `${this.#http}/api/system/scheduler/leases/${leaseId}/heartbeat`,
        {
          agent: this.#agent,
          method: 'POST',
          headers: { 'content-type': 'application/json', 'content-length': body.length },
          signal: AbortSignal.timeout(patienceMs),
        },
        (response) => {
          response.resume();
          response.on('end', () =>
            response.statusCode === 200 ? resolve() : reject(new Error(`status ${response.statusCode}`)),
          );
        },
      );
      sent.on('error', reject);
      sent.end(body);
    });
  }
}

/** The 99th percentile. */
export function p99(times: readonly number[]): number {
  const sorted = [...times].sort((a, b) => a - b);
  return sorted[Math.min(Math.floor(sorted.length * 0.99), sorted.length - 1)] ?? Number.POSITIVE_INFINITY;
}
