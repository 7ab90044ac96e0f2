import { expect } from 'chai';
import { FileLeasesService } from '../../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../../gen/leasehold/v1/jobs_pb.js';
import { KeysService } from '../../../gen/leasehold/v1/keys_pb.js';
import { LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { QuotasService } from '../../../gen/leasehold/v1/quotas_pb.js';
import { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import { rpcAccess } from '../../../src/domain/access/methods.ts';

const services = [JobsService, LeasesService, StatsService, FileLeasesService, KeysService, QuotasService];

describe('access to methods', () => {
  it('names every RPC of the descriptors, and no other', () => {
    const named = services.flatMap(({ typeName, methods }) =>
      methods.map(({ name }) => `${typeName}/${name}`),
    );
    expect(Object.keys(rpcAccess).sort()).to.deep.equal(named.sort());
  });
});
