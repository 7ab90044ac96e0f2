/**
 * Loaded into a server before everything else, this makes all that counts in it do nothing: `metrics-cost` compares such
 * a server with one as users have it. Nobody else wants one, so that it is no setting.
 */
import { PerformanceObserver } from 'node:perf_hooks';
import { BatchMeter } from '../../src/telemetry/batch-metrics.ts';
import { CallMeter, type RunningCall } from '../../src/telemetry/call-metrics.ts';
import { Counter, Histogram } from '../../src/telemetry/registry.ts';
import { DatabaseMeter, ReapMeter, RoundMeter } from '../../src/telemetry/service-metrics.ts';

const uncounted = { run: <T>(work: () => T): T => work(), end: () => {} } as unknown as RunningCall;

Counter.prototype.add = () => {};
Histogram.prototype.observe = () => {};
CallMeter.prototype.begin = () => uncounted;
BatchMeter.prototype.caller = () => undefined;
BatchMeter.prototype.run = (_aboard, _weight, work) => work();
RoundMeter.prototype.time = (work) => work();
ReapMeter.prototype.handled = () => {};
DatabaseMeter.prototype.time = (_kind, work) => work();
DatabaseMeter.prototype.retried = () => {};
// Of these a server has one, which watches its garbage.
PerformanceObserver.prototype.observe = () => {};
