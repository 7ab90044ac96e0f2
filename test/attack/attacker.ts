/**
 * The attacker's process: `attacker.ts <name> <target as JSON>` attacks for the time that the target
 * names.
 */
import { attacks } from './list.ts';
import type { Target } from './wire.ts';

const [name, target] = process.argv.slice(2);
const attack = attacks.find((one) => one.name === name);
if (!attack || target === undefined) throw new Error(`there is no attack ${name}`);
const parsed = JSON.parse(target) as Target;
const counts = await attack.run(parsed, AbortSignal.timeout(parsed.seconds * 1_000));
process.stdout.write(JSON.stringify(counts));
// What is open is closed by the system, as with an attacker that has gone.
process.exit(0);
