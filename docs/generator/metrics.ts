import type { Declared } from '../../src/telemetry/registry.ts';
import { code, codes, table } from './markdown.ts';

/** Every metric, as the registry of a running server declares it. */
export const metricsSection = (metrics: readonly Declared[]): string =>
  table(
    ['Name', 'Type', 'Labels', 'Description'],
    metrics.map(({ name, kind, labelNames, help }) => [code(name), kind, codes(labelNames), help]),
  );
