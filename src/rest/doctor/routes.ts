/** `/api/system/doctor`: findings about the server, its database and its Redis. */
import { iso } from '../../domain/time.ts';
import type { Doctor } from '../../engine/doctor/doctor.ts';
import type { Route } from '../http/router.ts';
import { serverAbout } from '../server/docs.ts';

export const doctorRoutes = (doctor: Doctor): Route[] => [
  {
    method: 'GET',
    path: '/api/system/doctor',
    about: serverAbout.getDiagnosis,
    async handle() {
      const { nowMs, ...diagnosis } = await doctor.runOnce();
      return { status: 200, body: { ts: iso(nowMs), ...diagnosis } };
    },
  },
];
