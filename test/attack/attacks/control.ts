/** The control: a client that means well and uses its core as an attacker does, with complete requests. */
import { type Attack, enveloped, flags, flood, frame, grpcBlock, Peer, setting, type } from '../wire.ts';

const block = grpcBlock('/leasehold.v1.JobsService/GetJob');
// GetJobRequest with a job_id that does not exist.
const id = Buffer.from('00000000-0000-7000-8000-000000000000');
const message = enveloped(Buffer.concat([Buffer.from([0x0a, id.length]), id]));
const ahead = 50;
const endStream = 1;

/**
 * How many streams of a chunk of frames have ended. Frames that begin in one chunk and end in the next
 * are kept.
 */
class Answers {
  #rest: Buffer = Buffer.alloc(0);

  count(chunk: Buffer): number {
    let bytes = Buffer.concat([this.#rest, chunk]);
    let ended = 0;
    while (bytes.length >= 9 && bytes.length >= 9 + bytes.readUIntBE(0, 3)) {
      const isEnd = bytes[3] === type.headers && ((bytes[4] ?? 0) & endStream) !== 0;
      if (isEnd || bytes[3] === type.reset) ended++;
      bytes = bytes.subarray(9 + bytes.readUIntBE(0, 3));
    }
    this.#rest = bytes;
    return ended;
  }
}

export const control: Attack = {
  name: 'control',
  about: 'gRPC requests of a client that waits for their answers',
  run: ({ grpc }, signal) =>
    flood(
      8,
      signal,
      () => Peer.openHttp2(grpc, setting(4, 1_000_000)),
      async (peer) => {
        const answers = new Answers();
        let open = ahead;
        const answered = new Promise<void>((resolve) => {
          const read = (chunk: Buffer) => {
            open -= answers.count(chunk);
            if (open <= 0) done();
          };
          const done = () => {
            peer.socket.off('data', read);
            peer.socket.off('close', done);
            signal.removeEventListener('abort', done);
            resolve();
          };
          peer.socket.on('data', read);
          peer.socket.on('close', done);
          signal.addEventListener('abort', done);
        });
        const frames: Buffer[] = [];
        for (let i = 0; i < ahead; i++) {
          const stream = peer.nextStream();
          frames.push(
            frame(type.headers, flags.endHeaders, stream, block),
            frame(type.data, flags.endStream, stream, message),
          );
        }
        await peer.write(Buffer.concat(frames));
        await answered;
        return ahead;
      },
    ),
};
