#!/usr/bin/env -S node --max-semi-space-size=64 --no-allocation-site-pretenuring
import module from 'node:module';

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
  process.stderr.write(`leasehold: needs Node 22.18 or later; this is ${process.version}\n`);
  process.exit(1);
}

// Modules are loaded after this, so that from the second start on they are read compiled from the cache.
module.enableCompileCache();
const { main } = await import('./cli/main.ts');

process.exitCode = await main(process.argv.slice(2));

// Everything has been closed by now. Only a connection whose other end does not answer may still keep the
// process alive.
setTimeout(() => process.exit(), 500).unref();
