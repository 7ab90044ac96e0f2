import { burn } from './attacks/burn.ts';
import { compressionBombs } from './attacks/compression-bombs.ts';
import { continuationFlood } from './attacks/continuation-flood.ts';
import { control } from './attacks/control.ts';
import { halfMessages } from './attacks/half-messages.ts';
import { idleConnections } from './attacks/idle-connections.ts';
import { madeYouReset } from './attacks/made-you-reset.ts';
import { malformed } from './attacks/malformed.ts';
import { pingFlood } from './attacks/ping-flood.ts';
import { rapidReset } from './attacks/rapid-reset.ts';
import { settingsFlood } from './attacks/settings-flood.ts';
import { slowHeaders } from './attacks/slow-headers.ts';
import { slowReaders } from './attacks/slow-readers.ts';
import type { Attack } from './wire.ts';

/** In the order in which they run. The two controls go first. */
export const attacks: readonly Attack[] = [
  burn,
  control,
  rapidReset,
  madeYouReset,
  pingFlood,
  settingsFlood,
  continuationFlood,
  slowHeaders,
  slowReaders,
  idleConnections,
  halfMessages,
  compressionBombs,
  malformed,
];
