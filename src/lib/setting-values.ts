/** What a setting is, and the kinds of values: what is allowed, in words, and how a text is read. */
import { isIP } from 'node:net';

/**
 * A setting with its variable, its allowed values, and its purpose. It is also a flag of `leasehold serve`:
 * `LEASEHOLD_HTTP_ADDR` is `--http-addr`, or in full `--leasehold-http-addr`. A flag takes precedence over a
 * variable, and an empty variable counts as unset.
 */
export interface Setting<T> {
  variable: string;
  /** Shown by `--help` if the default is not a plain value. */
  defaultText?: string;
  default: T;
  about: string;
  /** The allowed values, for the error message. */
  allowed: string;
  /** Returns the value, or undefined if it is not allowed. */
  parse(text: string): T | undefined;
}

export const setting = <T>(definition: Setting<T>): Setting<T> => definition;

export interface Address {
  host: string;
  port: number;
}

export const whole = (minimum: number, maximum: number) => ({
  allowed: `a whole number from ${minimum.toLocaleString('en')} to ${maximum.toLocaleString('en')}`,
  parse: (text: string): number | undefined => {
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    return number >= minimum && number <= maximum ? number : undefined;
  },
});

export const address = {
  allowed: 'host:port, with a port from 0 to 65,535 (0 picks a free one)',
  parse(text: string): Address | undefined {
    const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:[\]]+)):(\d{1,5})$/.exec(text);
    const port = Number(match?.[3]);
    const host = match?.[1] ?? match?.[2];
    return host !== undefined && port <= 65_535 ? { host, port } : undefined;
  },
};

export const hosts = {
  allowed: 'names without ports, *.suffix for all names below one, or * for any, separated by commas',
  parse(text: string): readonly string[] | undefined {
    const names = text.split(',').map((name) => name.trim().toLowerCase());
    return names.every((name) => name === '*' || isHostName(name) || isIP(name) !== 0) ? names : undefined;
  },
};

/** Labels of letters, digits, hyphens and underscores; the first may be `*`. */
const isHostName = (name: string): boolean =>
  name.length <= 253 && /^(?:\*\.)?[\w-]{1,63}(?:\.[\w-]{1,63})*$/.test(name);

export const origins = {
  allowed: 'exact origins as browsers send them, such as https://app.example.org, separated by commas',
  parse(text: string): readonly string[] | undefined {
    const found = text.split(',').map((origin) => origin.trim());
    return found.every(isOrigin) ? found : undefined;
  },
};

export const origin = {
  allowed: 'an origin without a path, such as https://leasehold.example.org',
  parse: (text: string): string | undefined => (isOrigin(text) ? text : undefined),
};

/** A scheme, a host in lower case, and a port unless it is the default. `null` and `*` are none. */
const isOrigin = (text: string): boolean =>
  /^https?:\/\/[^*]+$/.test(text) && URL.canParse(text) && new URL(text).origin === text;

export const networks = {
  allowed: 'addresses or networks such as 10.0.0.0/8, separated by commas',
  parse(text: string): readonly string[] | undefined {
    const found = text.split(',').map((one) => one.trim());
    return found.every(isNetwork) ? found : undefined;
  },
};

function isNetwork(text: string): boolean {
  const [, address = '', bits] = /^([\da-fA-F:.]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  return version !== 0 && (bits === undefined || Number(bits) <= (version === 4 ? 32 : 128));
}

export const oneOf = <Name extends string>(...names: readonly Name[]) => ({
  allowed: `one of ${names.join(', ')}`,
  parse: (text: string): Name | undefined => names.find((name) => name === text),
});

export const url = (scheme: string, schemes: readonly string[]) => ({
  allowed: `a ${scheme}:// address`,
  parse(text: string): string | undefined {
    if (!URL.canParse(text)) return undefined;
    const { protocol, username, password, pathname } = new URL(text);
    return schemes.includes(protocol) && isDecodable(username + password + pathname) ? text : undefined;
  },
});

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

export const list = <Name extends string>(names: readonly Name[]) => ({
  allowed: `a list of ${names.join(', ')}, separated by commas`,
  parse(text: string): readonly Name[] | undefined {
    const found = text
      .split(',')
      .map((name) => names.find((known) => known.toLowerCase() === name.trim().toLowerCase()));
    return found.every((name): name is Name => name !== undefined) ? found : undefined;
  },
});

/** A text that is compared as it is written. */
export const plainText = {
  allowed: 'a text without spaces, of at most 2,048 characters',
  parse: (text: string) => (/^[^\s\0]{1,2048}$/.test(text) ? text : undefined),
};

export const path = {
  allowed: 'the path of a file',
  parse: (text: string) => (text.includes('\0') ? undefined : text),
};
