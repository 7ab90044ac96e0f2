import { create, type DescMessage, toBinary } from '@bufbuild/protobuf';
import { ValueSchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { JobSchema } from '../../../gen/leasehold/v1/jobs_pb.js';
import { ReleaseLeaseRequestSchema, StreamWorkRequestSchema } from '../../../gen/leasehold/v1/leases_pb.js';
import { numbersOf, tagOf } from '../../../src/rpc/wire/fields.ts';
import { WireReader } from '../../../src/rpc/wire/reader.ts';

describe('the tags of fields', () => {
  const firstTag = <Desc extends DescMessage>(schema: Desc, fields: Parameters<typeof create<Desc>>[1]) => {
    const bytes = Buffer.from(toBinary(schema, create(schema, fields)));
    return new WireReader(bytes).tag(bytes.length);
  };

  it('computes the tags that the generated code writes, for every wire type in use', () => {
    const { heartbeats, workerId } = StreamWorkRequestSchema.field;
    expect(tagOf(heartbeats)).to.equal(firstTag(StreamWorkRequestSchema, { heartbeats: [{}] }));
    expect(tagOf(workerId)).to.equal(firstTag(StreamWorkRequestSchema, { workerId: 'w' }));
    expect(tagOf(ReleaseLeaseRequestSchema.field.status)).to.equal(
      firstTag(ReleaseLeaseRequestSchema, { status: 1 }),
    );
    expect(tagOf(JobSchema.field.costUnits)).to.equal(firstTag(JobSchema, { costUnits: 3 }));
    expect(tagOf(JobSchema.field.unique)).to.equal(firstTag(JobSchema, { unique: true }));
    expect(tagOf(JobSchema.field.progress)).to.equal(firstTag(JobSchema, { progress: 0.5 }));
    expect(tagOf(JobSchema.field.tags)).to.equal(firstTag(JobSchema, { tags: ['t'] }));
    expect(tagOf(JobSchema.field.payload)).to.equal(firstTag(JobSchema, { payload: {} }));
  });

  it('names every field of a message, those of a oneof included', () => {
    expect(numbersOf(ValueSchema)).to.deep.equal({
      nullValue: 1,
      numberValue: 2,
      stringValue: 3,
      boolValue: 4,
      structValue: 5,
      listValue: 6,
    });
  });
});
