#!/usr/bin/env -S node --max-semi-space-size=64
import { enableCompileCache } from 'node:module';

// Modules are loaded after this, so that from the second start on they come compiled from the cache.
enableCompileCache();
const { main } = await import('./cli/commands.ts');

process.exitCode = await main(process.argv.slice(2));

// Everything has been closed by now. What may still hold the process is a connection whose other end does not answer.
setTimeout(() => process.exit(), 500).unref();
