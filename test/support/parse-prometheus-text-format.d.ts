/** The package has no types of its own; these are of what is used. */
declare module 'parse-prometheus-text-format' {
  export interface Family {
    name: string;
    help: string;
    type: string;
    metrics: { labels?: Record<string, string>; value?: string }[];
  }
  export default function parsePrometheusTextFormat(text: string): Family[];
}
