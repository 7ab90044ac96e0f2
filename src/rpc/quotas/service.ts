import { create } from '@bufbuild/protobuf';
import {
  type Quota as QuotaMessage,
  QuotaSchema,
  type QuotasService,
} from '../../../gen/leasehold/v1/quotas_pb.js';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { QuotaWithUse } from '../../engine/quotas/quota-service.ts';
import type { Implementation } from '../implementation.ts';
import { timestamp } from '../jobs/convert.ts';

/** QuotasService: proto in, one engine call, proto out. */
export function quotasImplementation({ quotas }: Engine): Implementation<typeof QuotasService> {
  return {
    async setQuota({ addonId, maxUnits, maxQueued, maxPayloadBytes }, caller) {
      const command = parse.setQuota({
        addon_id: addonId,
        max_units: numberOf(maxUnits),
        max_queued: numberOf(maxQueued),
        max_payload_bytes: maxPayloadBytes,
      });
      const found = await quotas.set(command, caller);
      return found ? { quota: quotaMessage(found) } : {};
    },

    async listQuotas(_request, caller) {
      return { quotas: (await quotas.list(caller)).map(quotaMessage) };
    },
  };
}

const numberOf = (value: bigint | undefined): number | undefined =>
  value === undefined ? undefined : Number(value);

const quotaMessage = ({ quota, use }: QuotaWithUse): QuotaMessage =>
  create(QuotaSchema, {
    addonId: quota.addonId,
    ...(quota.maxUnits === null ? {} : { maxUnits: BigInt(quota.maxUnits) }),
    ...(quota.maxQueued === null ? {} : { maxQueued: BigInt(quota.maxQueued) }),
    ...(quota.maxPayloadBytes === null ? {} : { maxPayloadBytes: quota.maxPayloadBytes }),
    usedUnits: BigInt(use.units),
    queuedJobs: BigInt(use.queued),
    updatedAt: timestamp(quota.updatedAtMs),
    updatedBy: quota.updatedBy,
  });
