/**
 * Authenticates each gRPC call, and checks its role, before a message of it is read.
 *
 * grpc-js delivers the metadata of a call when the call is started. The start is put off until the caller is
 * known; a refused call is never started, and its stream is closed. The metadata is a private property;
 * `test/rpc/grpc/admission.test.ts` fails if it moves.
 */
import { constants } from 'node:http2';
import { Metadata, type ServerInterceptingCallInterface } from '@grpc/grpc-js';
import { isRpc } from '../../domain/access/methods.ts';
import type { Principal } from '../../domain/access/principal.ts';
import { anonymous, localPrincipal } from '../../domain/access/principal.ts';
import type { Access } from '../../domain/access/roles.ts';
import { requireAccess } from '../../engine/access/access-control.ts';
import type { Authenticator } from '../../engine/access/authenticator.ts';
import { peerCertificateOf } from '../../lib/net/peer-certificate.ts';
import { traceIdIn } from '../../telemetry/call-metrics.ts';
import { toConnectError } from '../errors.ts';
import { carrierOf, statusOf } from './status.ts';

/** The principals of running calls, by the metadata that the call's handler gets. */
const principals = new WeakMap<Metadata, Principal>();

/** The principal of a call. Without authentication that is the local one. */
export const principalOf = (metadata: Metadata): Principal => principals.get(metadata) ?? localPrincipal;

interface StartedCall {
  metadata: unknown;
  stream: {
    once(event: 'finish', listener: () => void): unknown;
    close(code: number): void;
    session?: { socket: object };
  };
}

export function admit(
  call: ServerInterceptingCallInterface,
  access: Access,
  authenticator: Authenticator,
  path: string,
): void {
  if (!authenticator.isOn || access === 'open') return;
  const { metadata, stream } = call as unknown as StartedCall;
  if (!(metadata instanceof Metadata))
    throw new Error('this version of grpc-js keeps the metadata elsewhere');
  const start = call.start;
  const peer = addressIn(call.getPeer());
  let known = anonymous;
  const refuse = (error: unknown) => {
    const name = path.slice(1);
    const method = isRpc(name) ? name : 'other';
    const traceId = traceIdIn(carrierOf(metadata));
    authenticator.refusals.note({ principal: known, peer, method, traceId }, error);
    stream.once('finish', () => stream.close(constants.NGHTTP2_NO_ERROR));
    call.sendStatus(statusOf(toConnectError(error as Error, { log: authenticator.log, method: access })));
  };
  call.start = (listener) => {
    const go = (principal: Principal) => {
      known = principal;
      requireAccess(principal, access);
      principals.set(metadata, principal);
      start.call(call, listener);
    };
    try {
      const [authorization] = metadata.get('authorization');
      const { session } = stream;
      const found = authenticator.authenticate({
        authorization: authorization?.toString(),
        peer,
        certificate:
          authenticator.takesCertificates && session
            ? peerCertificateOf(session, () => session.socket)
            : undefined,
      });
      if (found instanceof Promise) found.then(go).catch(refuse);
      else go(found);
    } catch (error) {
      refuse(error);
    }
  };
}

/** grpc-js writes the port behind the address. */
const addressIn = (peer: string): string => peer.replace(/:\d+$/, '');
