import { hostname } from 'node:os';
import { inLine, inLines } from './terminal-text.ts';

export const logLevels = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof logLevels)[number];
export type LogFields = Record<string, unknown>;

export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export interface LogOptions {
  level: LogLevel;
  /** Text for people instead of JSON for machines. */
  human: boolean;
  write?: (line: string) => void;
}

/** A log with one line for each event: JSON, or readable text for a terminal. */
export function createLog({ level, human, write = (line) => process.stderr.write(line) }: LogOptions): Log {
  const host = hostname();
  const at = (name: LogLevel) => {
    if (logLevels.indexOf(name) < logLevels.indexOf(level)) return () => {};
    return (message: string, fields: LogFields = {}) => {
      const ts = new Date().toISOString();
      const plain = Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, plainly(value)]));
      write(
        human
          ? `${ts.slice(11, 23)} ${name.padEnd(5)} ${inLine(message)}${readable(plain)}\n`
          : `${inLine(JSON.stringify({ ts, level: name, msg: message, ...plain, pid: process.pid, host }))}\n`,
      );
    };
  };
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** The messages of an error and of its causes, in one line without stacks. */
export function inOneLine(error: unknown): string {
  const words: string[] = [];
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const text = at.message || (at as NodeJS.ErrnoException).code || at.name;
    if (!words.some((word) => word.includes(text))) words.push(text);
  }
  return words.join(': ') || String(error);
}

/** An error as fields, with its cause. */
function plainly(value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  const { name, message, stack, cause } = value;
  return { name, message, stack, ...(cause === undefined ? {} : { cause: plainly(cause) }) };
}

function readable(fields: LogFields): string {
  const parts = Object.entries(fields).map(([key, value]) => {
    if (typeof value === 'object' && value !== null && 'stack' in value)
      return `\n  ${inLines(String(value.stack))}`;
    return inLine(` ${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
  });
  return parts.join('');
}
