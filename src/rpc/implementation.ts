import type { DescMethod, DescService, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import type { Caller } from '../engine/context.ts';
import type { EncodedMessage } from './job-bytes.ts';

/**
 * A service's methods, free of any transport: a decoded request and its caller in, a response out, which may be
 * encoded already. `grpc.ts` and `connect.ts` bind the same implementation to their wires.
 */
export type Implementation<Service extends DescService> = {
  [Name in keyof Service['method']]: Method<Service['method'][Name]>;
};

export type Method<Desc extends DescMethod> = Desc extends { methodKind: 'server_streaming' }
  ? (request: MessageShape<Desc['input']>, caller: Caller) => AsyncIterable<MessageInitShape<Desc['output']>>
  : (
      request: MessageShape<Desc['input']>,
      caller: Caller,
    ) => Promise<MessageInitShape<Desc['output']> | EncodedMessage>;

/** A service and how it is implemented. */
export interface Binding<Service extends DescService = DescService> {
  service: Service;
  implementation: Implementation<Service>;
}
