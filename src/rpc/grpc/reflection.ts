import { type DescFile, toBinary } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { ReflectionService } from '@grpc/reflection';
import { file_google_rpc_error_details } from '../../../gen/google/rpc/error_details_pb.js';
import { file_google_rpc_status } from '../../../gen/google/rpc/status_pb.js';
import { file_grpc_health_v1_health } from '../../../gen/grpc/health/v1/health_pb.js';
import type { Binding } from '../implementation.ts';

/** The files that reflection describes: the services, their types, health, and the details of errors. */
export function reflectionOf(bindings: readonly Binding[]): ReflectionService {
  const files = new Map<string, Buffer>();
  const add = (file: DescFile) => {
    for (const dependency of file.dependencies) add(dependency);
    files.set(file.name, Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto)));
  };
  for (const { service } of bindings) add(service.file);
  add(file_google_rpc_error_details);
  add(file_google_rpc_status);
  add(file_grpc_health_v1_health);
  return new ReflectionService({
    all: { format: 'Protocol Buffer 3 DescriptorProto', type: {}, fileDescriptorProtos: [...files.values()] },
  });
}
