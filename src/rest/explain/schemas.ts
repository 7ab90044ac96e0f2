/** Explanations with the queue contract's field names. */
import Type, { type Static } from 'typebox';
import type { Explanation } from '../../domain/explain/explain.ts';
import { type Attempt, type Cause, causeCodes } from '../../domain/explain/facts.ts';
import { lengthMs, meanIntervalMs, ttlShare } from '../../domain/explain/silences.ts';
import { type Step, stepKinds } from '../../domain/explain/timeline.ts';
import { eventTypes } from '../../domain/jobs/state-machine.ts';
import { iso } from '../../domain/time.ts';
import { JobIntent, jobIntent } from '../jobs/schemas.ts';
import { LeaseRecord, leaseRecord } from '../leases/schemas.ts';
import {
  count,
  entity,
  jsonObject,
  list,
  oneOf,
  orNull,
  time,
  uuid,
  whole,
  word,
} from '../openapi/schema-types.ts';

const ExplainedCause = entity('Cause', 'One reason why something is as it is.', {
  code: oneOf(causeCodes, 'What it is, for programs.'),
  text: word('The same in a sentence, for people.'),
  since: orNull(time('Since when it holds, or when it happened, where that is known.')),
  until: orNull(time('When it will be over at the latest, where that is known.')),
  facts: jsonObject('The figures behind the sentence.'),
});

const StoryStep = entity('Step', 'A piece of the story.', {
  kind: oneOf(stepKinds, 'An event, heartbeats, a time without one, or one in which no server lived.'),
  ts: time('When it was, or began.'),
  until: orNull(time('When it was over; of what was repeated, the last time.')),
  type: orNull(oneOf(eventTypes, 'What kind of event it was.')),
  event_id: orNull(word('The event.')),
  by: orNull(word('Who did it.')),
  lease_id: orNull(uuid('The lease that it has to do with.')),
  text: word('What happened, in words.'),
  times: whole('How often in a row.'),
});

const { payload: _payload, ...jobWithoutPayload } = JobIntent.properties;
const ExplainedJob = entity('ExplainedJob', 'A job without its payload, which explains nothing.', {
  ...jobWithoutPayload,
});
const ExplainedSilence = entity(
  'Silence',
  'A time without a heartbeat: from the grant or a heartbeat to the next one, to the release, to the end ' +
    'that max_runtime_s set, or to now.',
  {
    since: time('When it began.'),
    until: time('When it was over; of one that is not, now.'),
    lasted_ms: count('How long it was.'),
    ttl_share: Type.Number({
      minimum: 0,
      description:
        'The same as a share of the TTL: 0.8 is four fifths of it, and more than 1 may be survived.',
    }),
  },
);
const ExplainedAttempt = entity('ExplainedAttempt', 'An attempt at a job, and what became of it.', {
  attempt_id: uuid('Its lease.'),
  ...LeaseRecord.properties,
  causes: list(ExplainedCause, 'How it is, or how it ended and why: the main reason first.'),
  heartbeats: orNull(count('How many heartbeats kept it; null where it is older than their count.')),
  mean_heartbeat_interval_ms: orNull(
    count(
      'The mean time from one to the next, from the grant to the last; null where none is known of that came later than the grant.',
    ),
  ),
  longest_silence: Type.Union([ExplainedSilence, Type.Null()], {
    description:
      'The longest that did not end the lease; null where there is none, or where it is older than their record. The one by which it expired is among its causes.',
  }),
});

export const ExplanationBody = Type.Object({
  ts: time('The time of the answer.'),
  job: ExplainedJob,
  lease: orNull(LeaseRecord),
  since: time('When the job came into its state.'),
  summary: word('The answer in one plain sentence.'),
  causes: list(ExplainedCause, 'Why it is so, the main reason first.'),
  steps: list(StoryStep, 'What happened, in order.'),
  steps_left_out: count('Steps that are left out in the middle of a long history.'),
  left_out_after: count('The number of shown steps that precede them.'),
  attempts: list(ExplainedAttempt, 'The attempts, the oldest first.'),
  attempts_left_out: count('Older attempts that are left out.'),
});

export function explanationBody(explanation: Explanation): Static<typeof ExplanationBody> {
  const { payload: _, ...job } = jobIntent(explanation.job);
  return {
    ts: iso(explanation.nowMs),
    job,
    lease: explanation.lease && leaseRecord(explanation.lease),
    since: iso(explanation.sinceMs),
    summary: explanation.summary,
    causes: explanation.causes.map(causeBody),
    steps: explanation.steps.map(stepBody),
    steps_left_out: explanation.stepsLeftOut,
    left_out_after: explanation.leftOutAfter,
    attempts: explanation.attempts.map(attemptBody),
    attempts_left_out: explanation.attemptsLeftOut,
  };
}

const attemptBody = ({ lease, signs, causes }: Attempt): Static<typeof ExplainedAttempt> => ({
  attempt_id: lease.leaseId,
  ...leaseRecord(lease),
  causes: causes.map(causeBody),
  heartbeats: signs.heartbeats,
  mean_heartbeat_interval_ms: meanIntervalMs(lease, signs),
  longest_silence: signs.longestSilence && {
    since: iso(signs.longestSilence.sinceMs),
    until: iso(signs.longestSilence.untilMs),
    lasted_ms: lengthMs(signs.longestSilence),
    ttl_share: ttlShare(signs.longestSilence, lease),
  },
});

const causeBody = ({ code, text, sinceMs, untilMs, facts }: Cause): Static<typeof ExplainedCause> => ({
  code,
  text,
  since: iso(sinceMs),
  until: iso(untilMs),
  facts,
});

const stepBody = (step: Step): Static<typeof StoryStep> => ({
  kind: step.kind,
  ts: iso(step.tsMs),
  until: iso(step.untilMs),
  type: step.type,
  event_id: step.eventId,
  by: step.by,
  lease_id: step.leaseId,
  text: step.text,
  times: step.times,
});
