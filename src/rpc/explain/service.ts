import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  Explanation_AttemptSchema,
  type Explanation_CauseSchema,
  Explanation_StepKind,
  type Explanation_StepSchema,
  ExplanationSchema,
} from '../../../gen/leasehold/v1/explain_pb.js';
import type { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import { invalid } from '../../domain/errors.ts';
import type { Explanation } from '../../domain/explain/explain.ts';
import type { Attempt, Cause } from '../../domain/explain/facts.ts';
import { lengthMs, meanIntervalMs, ttlShare } from '../../domain/explain/silences.ts';
import type { Step } from '../../domain/explain/timeline.ts';
import { limits } from '../../domain/limits.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Implementation } from '../implementation.ts';
import { jobMessage, timestamp } from '../jobs/convert.ts';
import { leaseMessage } from '../leases/convert.ts';
import { bytesOf, groupsThatFit } from '../response-size.ts';

/** StatsService.Explain, to be spread into the rest of the service. */
export function explainMethods({
  jobs,
  leases,
}: Engine): Pick<Implementation<typeof StatsService>, 'explain'> {
  return {
    async explain({ subject }, caller) {
      if (subject.case === 'jobId')
        return { explanation: explanationMessage(await jobs.explain(subject.value, caller)) };
      if (subject.case === 'leaseId')
        return { explanation: explanationMessage(await leases.explain(subject.value, caller)) };
      throw invalid('job_id', 'is required, or lease_id');
    },
  };
}

const optional = (ms: number | null) => (ms === null ? undefined : timestamp(ms));

const explanationMessage = (explanation: Explanation): MessageInitShape<typeof ExplanationSchema> => {
  // A payload may take a megabyte and does not contribute to the explanation.
  const { payload: _, ...job } = jobMessage(explanation.job);
  const message = create(ExplanationSchema, {
    ts: timestamp(explanation.nowMs),
    job,
    lease: explanation.lease === null ? undefined : leaseMessage(explanation.lease),
    since: timestamp(explanation.sinceMs),
    summary: explanation.summary,
    causes: explanation.causes.map(causeMessage),
    steps: explanation.steps.map(stepMessage),
    stepsLeftOut: explanation.stepsLeftOut,
    leftOutAfter: explanation.leftOutAfter,
  });
  const attempts = explanation.attempts.map((each) =>
    create(Explanation_AttemptSchema, attemptMessage(each)),
  );
  // An attempt may have a megabyte of details. The newest attempts matter most.
  const room = limits.answerBytes - bytesOf(ExplanationSchema, message);
  const [newest = []] = groupsThatFit(Explanation_AttemptSchema, attempts.toReversed(), room);
  message.attempts = newest.toReversed();
  message.attemptsLeftOut = explanation.attemptsLeftOut + attempts.length - newest.length;
  return message;
};

function attemptMessage({
  lease,
  signs,
  causes,
}: Attempt): MessageInitShape<typeof Explanation_AttemptSchema> {
  const everyMs = meanIntervalMs(lease, signs);
  const silence = signs.longestSilence;
  return {
    lease: leaseMessage(lease),
    causes: causes.map(causeMessage),
    heartbeats: signs.heartbeats ?? undefined,
    meanHeartbeatIntervalMs: everyMs === null ? undefined : BigInt(everyMs),
    longestSilence: silence
      ? {
          since: timestamp(silence.sinceMs),
          until: timestamp(silence.untilMs),
          lastedMs: BigInt(lengthMs(silence)),
          ttlShare: ttlShare(silence, lease),
        }
      : undefined,
  };
}

const causeMessage = ({
  code,
  text,
  sinceMs,
  untilMs,
  facts,
}: Cause): MessageInitShape<typeof Explanation_CauseSchema> => ({
  code,
  text,
  since: optional(sinceMs),
  until: optional(untilMs),
  facts,
});

const stepMessage = (step: Step): MessageInitShape<typeof Explanation_StepSchema> => ({
  kind: Explanation_StepKind[step.kind],
  ts: timestamp(step.tsMs),
  until: optional(step.untilMs),
  type: step.type ?? undefined,
  eventId: step.eventId === null ? undefined : BigInt(step.eventId),
  by: step.by ?? undefined,
  leaseId: step.leaseId ?? undefined,
  text: step.text,
  times: step.times,
});
