/** Limits of one key, in place of those of the server. Null leaves the server's, and 0 is no limit. */
export interface KeyLimits {
  submitPerS: number | null;
  readPerS: number | null;
  burstS: number | null;
  maxStreams: number | null;
}

export const serverLimits: KeyLimits = { submitPerS: null, readPerS: null, burstS: null, maxStreams: null };
