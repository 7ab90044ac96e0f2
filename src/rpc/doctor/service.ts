import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Diagnosis_Level, DiagnosisSchema } from '../../../gen/leasehold/v1/diagnose_pb.js';
import type { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import type { Diagnosis } from '../../domain/doctor/doctor.ts';
import type { Doctor } from '../../engine/doctor/doctor.ts';
import type { Implementation } from '../implementation.ts';
import { timestamp } from '../jobs/convert.ts';

/** StatsService.Diagnose, to be spread into the rest of the service. */
export const diagnoseMethods = (doctor: Doctor): Pick<Implementation<typeof StatsService>, 'diagnose'> => ({
  diagnose: async () => ({ diagnosis: diagnosisMessage(await doctor.runOnce()) }),
});

const diagnosisMessage = ({
  nowMs,
  version,
  level,
  findings,
}: Diagnosis): MessageInitShape<typeof DiagnosisSchema> =>
  create(DiagnosisSchema, {
    ts: timestamp(nowMs),
    version,
    level: Diagnosis_Level[level],
    findings: findings.map(({ area, code, level, text, advice, facts }) => ({
      area,
      code,
      level: Diagnosis_Level[level],
      text,
      advice: advice ?? undefined,
      facts,
    })),
  });
