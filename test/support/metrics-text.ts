/**
 * What `/metrics` says, read by a parser of Prometheus's text format that is not ours.
 *
 * The parser gathers the lines of a histogram and forgets their labels, so it reads the text twice: as it is, for the
 * families and their types, and without the types, which leaves every line as the sample that it is.
 */
import parsePrometheusTextFormat from 'parse-prometheus-text-format';

export type LabelSet = Readonly<Record<string, string>>;

export class MetricsText {
  readonly text: string;
  /** What every name is said to be, and its help. */
  readonly families: readonly { name: string; type: string; help: string }[];
  /** Every line, by its name: `_bucket`, `_sum` and `_count` are parts of it. */
  readonly #samples = new Map<string, { labels: LabelSet; value: number }[]>();

  constructor(text: string) {
    this.text = text;
    this.families = parsePrometheusTextFormat(text).map(({ name, type, help }) => ({ name, type, help }));
    const bare = text.replace(/^#.*\n/gm, '');
    // Where names take turns, each turn is a family of its own.
    for (const { name, metrics } of parsePrometheusTextFormat(bare)) {
      const samples = metrics.map(({ labels = {}, value }) => ({ labels, value: Number(value) }));
      this.#samples.set(name, [...(this.#samples.get(name) ?? []), ...samples]);
    }
  }

  /** The names of all lines. */
  get lines(): string[] {
    return [...this.#samples.keys()];
  }

  /** The value of the line with this name and these labels, among others; undefined where there is none. */
  value(name: string, labels: LabelSet = {}): number | undefined {
    const wanted = Object.entries(labels);
    const isIt = (found: LabelSet) => wanted.every(([label, value]) => found[label] === value);
    return this.#samples.get(name)?.find((sample) => isIt(sample.labels))?.value;
  }

  /** The labels of all lines with this name. */
  labelSets(name: string): LabelSet[] {
    return (this.#samples.get(name) ?? []).map(({ labels }) => labels);
  }

  /** All values of a label. */
  labelled(name: string, label: string): string[] {
    return (this.#samples.get(name) ?? []).flatMap(({ labels }) => labels[label] ?? []);
  }
}

/** Reads the metrics of a server, by its address. */
export async function readMetrics(http: string): Promise<MetricsText> {
  const response = await fetch(`${http}/metrics`);
  return new MetricsText(await response.text());
}
