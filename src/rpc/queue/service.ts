import type { MessageInitShape } from '@bufbuild/protobuf';
import { Priority } from '../../../gen/leasehold/v1/jobs_pb.js';
import { QueueGroupSchema, type StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import type { QueueGroup } from '../../domain/queue/queue-group.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Implementation } from '../implementation.ts';
import { timestamp } from '../jobs/convert.ts';
import { pageThatFits } from '../response-size.ts';

/** StatsService.GetQueue, to be spread into the rest of the service. */
export function queueMethods({ queue }: Engine): Pick<Implementation<typeof StatsService>, 'getQueue'> {
  return {
    async getQueue({ limit, cursor }, caller) {
      const command = parse.getQueue({ limit, cursor });
      const page = await queue.get(command, caller);
      const { messages, nextCursor } = pageThatFits(page, {
        schema: QueueGroupSchema,
        messageOf: groupMessage,
        cursorOf: ({ laneId }) => String(laneId),
      });
      return {
        groups: messages,
        nextCursor,
        ts: timestamp(Math.floor(page.nowMs)),
        truncated: page.isCut,
      };
    },
  };
}

const groupMessage = ({
  oldest,
  asking,
  nextReadyAtMs,
  isUnique,
  stream,
  ...group
}: QueueGroup): MessageInitShape<typeof QueueGroupSchema> => ({
  addonId: group.addonId,
  jobType: group.jobType,
  stream: stream ?? undefined,
  requires: group.requires,
  heavy: group.heavy,
  unique: isUnique,
  ready: group.ready,
  delayed: group.delayed,
  claimed: group.claimed,
  running: group.running,
  nextReadyAt: nextReadyAtMs === null ? undefined : timestamp(nextReadyAtMs),
  workers: asking?.workers,
  slots: asking?.slots,
  oldest: oldest
    ? {
        jobId: oldest.jobId,
        priority: Priority[oldest.priority],
        costUnits: oldest.costUnits,
        readySince: timestamp(oldest.readySinceMs),
        causeCode: oldest.cause?.code ?? '',
        causeText: oldest.cause?.text ?? '',
      }
    : undefined,
});
