#!/usr/bin/env node
import { main } from './cli/commands.ts';

process.exitCode = await main(process.argv.slice(2));
