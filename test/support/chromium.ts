/**
 * A real, headless Chromium for tests of pages, driven by playwright-core. One process serves a test file; each test
 * opens a context of its own, so that no cookie, cache or page is shared. `atEnd` closes a browser that a test left open.
 */
import { type Browser, chromium } from 'playwright-core';
import { atEnd, temporaryFolder } from './cleanup.ts';
import { programPath } from './programs.ts';

/** Chromium asks its vendor's hosts for updates and lists at every start; a test talks to its own server only. */
const quiet = [
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-quic',
  '--disable-sync',
  '--no-first-run',
];

/** Starts a browser. `args` are further switches, such as `--host-resolver-rules=MAP a.test 127.0.0.1`. */
export async function startChromium(args: readonly string[] = []): Promise<Browser> {
  const isRoot = process.getuid?.() === 0;
  const browser = await chromium.launch({
    executablePath: programPath('chromium'),
    // The browser's sandbox refuses to run as root.
    args: [...quiet, ...(isRoot ? ['--no-sandbox'] : []), ...args],
    downloadsPath: await temporaryFolder('chromium'),
    handleSIGINT: false,
    handleSIGTERM: false,
    handleSIGHUP: false,
  });
  atEnd(() => browser.close());
  return browser;
}
