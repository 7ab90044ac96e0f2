import type { OnUnreachable } from '../../agent/guard.ts';
import { UsageError } from './args.ts';

export const onUnreachableVariable = 'LEASEHOLD_ON_UNREACHABLE';

/** The flag's value, or else the variable's, or else the command's default. */
export function readOnUnreachable(flag: string | undefined, habit: OnUnreachable): OnUnreachable {
  const value = flag || process.env[onUnreachableVariable] || habit;
  if (value === 'allow' || value === 'deny') return value;
  throw new UsageError(`--on-unreachable must be allow or deny, not ${JSON.stringify(value)}`);
}

export const onUnreachableHelp = (habit: OnUnreachable, allow: string, deny: string): string =>
  `  --on-unreachable <what>
                        What happens if no server answers.
                        'allow' ${allow}.
                        'deny' ${deny}.
                        The default is ${onUnreachableVariable}, or else
                        '${habit}'. A file that another owner is known to hold
                        is denied in any case.`;
