/**
 * A gRPC server in a process of its own that reports the share of garbage that young-generation collections
 * leave.
 */
import v8 from 'node:v8';
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from '@grpc/grpc-js';
import { replaceSessionStreams } from '../../../src/rpc/grpc/http2-stream-map.ts';
import { echo } from './echo.ts';

if (process.argv[2] !== 'as it is') replaceSessionStreams();

const server = new Server();
server.addService(echo, {
  echo(call: ServerUnaryCall<Buffer, Buffer>, answer: sendUnaryData<Buffer>) {
    setImmediate(() => answer(null, call.request));
  },
});
server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  process.send?.(port);
});

let profiler: v8.GCProfiler | undefined;
process.on('message', (message) => {
  if (message === 'watch') {
    // From now on the tables of all earlier calls are in the old generation.
    (globalThis as unknown as { gc(): void }).gc();
    profiler = new v8.GCProfiler();
    profiler.start();
    process.send?.('watching');
  } else {
    const result = profiler?.stop();
    if (result) process.send?.(shareLeft(result.statistics));
    process.disconnect();
    server.forceShutdown();
  }
});

type Collection = v8.GCProfilerResult['statistics'][number];

function shareLeft(collections: readonly Collection[]): { share: number; collections: number } {
  const quick = collections.filter(({ gcType }) => gcType === 'Scavenge');
  let [before, after] = [0, 0];
  for (const { beforeGC, afterGC } of quick) {
    before += used(beforeGC, 'new_space');
    after +=
      used(afterGC, 'new_space') + Math.max(0, used(afterGC, 'old_space') - used(beforeGC, 'old_space'));
  }
  return { share: after / before, collections: quick.length };
}

const used = ({ heapSpaceStatistics: spaces }: Collection['beforeGC'], name: string): number =>
  spaces.find(({ spaceName }) => spaceName === name)?.spaceUsedSize ?? 0;
