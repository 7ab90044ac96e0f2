import { Jobs } from './0001-jobs.ts';

/** In the order in which they run. Names are recorded in the database and never change. */
export const migrations = [{ name: '0001-jobs', class: Jobs }];
