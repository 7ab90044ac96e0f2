/**
 * The names that clients, scripts and dashboards rely on, read from where the program declares them: the descriptors of
 * the protos, the settings, the commands, the maps of errors, and a running server.
 *
 * A line is a name, or `name = value` where the value must not change either. `name: word` is one of the values of a name.
 */
import { join } from 'node:path';
import type { DescEnum, DescFile, DescMessage } from '@bufbuild/protobuf';
import { status as grpcStatus } from '@grpc/grpc-js';
import { FileLeasesService } from '../../gen/leasehold/v1/files_pb.js';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { StatsService } from '../../gen/leasehold/v1/stats_pb.js';
import { agentPidVariable } from '../../src/agent/find-agent.ts';
import { guardCodes, ownerVariable } from '../../src/agent/guard.ts';
import { folderVariable } from '../../src/agent/session-store.ts';
import { commands, type Entry, exitCodes } from '../../src/cli/main.ts';
import { type FlagTypes, globalFlags } from '../../src/cli/support/args.ts';
import { onUnreachableVariable } from '../../src/cli/support/on-unreachable.ts';
import { defaultUrl, urlVariable } from '../../src/client/http-client.ts';
import { flagVariables, readConfig, settings } from '../../src/config.ts';
import { DomainError, errorCodes } from '../../src/domain/errors.ts';
import { fileEventTypes } from '../../src/domain/files/file-lease.ts';
import { eventTypes } from '../../src/domain/jobs/state-machine.ts';
import { statuses } from '../../src/rest/http/errors.ts';
import { toConnectError } from '../../src/rpc/errors.ts';
import { startServer } from '../../src/server.ts';
import type { Declared } from '../../src/telemetry/registry.ts';
import { spanAttributes } from '../../src/telemetry/span-attributes.ts';
import { transactionName } from '../../src/telemetry/statement-names.ts';
import { temporaryFolder } from './cleanup.ts';
import { silentLog } from './jobs.ts';
import type { NameList } from './name-list.ts';
import { type OpenApi, restNames, restSchemaNames } from './rest-names.ts';

/** Every public name of this code. Starts a server on an embedded database of its own, and stops it. */
export async function publicNames(): Promise<NameList> {
  const served = await servedNames();
  const files = protoFiles();
  const messages = files.flatMap((file) => file.messages).flatMap(withNested);
  return {
    settings: [...settingNames(), ...otherVariables()],
    commands: [
      ...flagNames('leasehold', { color: globalFlags.color.type }),
      ...(await commandNames(commands, 'leasehold')),
    ],
    'exit codes': exitCodeNames(),
    'error codes': errorNames(),
    'event types': [...eventTypes, ...fileEventTypes],
    spans: [transactionName.name, ...Object.values(spanAttributes)],
    ...served,
    rpcs: files
      .flatMap(({ services }) => services)
      .flatMap(({ typeName, methods }) =>
        methods.map(
          ({ name, input, output, methodKind }) =>
            `${typeName}/${name} = ${methodKind} ${input.typeName} ${output.typeName}`,
        ),
      ),
    messages: messages.map(({ typeName }) => typeName),
    'message fields': messages.flatMap(({ typeName, fields }) =>
      fields.map(({ name, number }) => `${typeName}.${name} = ${number}`),
    ),
    'enum values': [...files, ...messages]
      .flatMap(enumsOf)
      .flatMap(({ typeName, values }) => values.map(({ name, number }) => `${typeName}.${name} = ${number}`)),
  };
}

/** What is asked of a server that runs. */
async function servedNames(): Promise<NameList> {
  const flags = {
    LEASEHOLD_DATA_DIR: join(await temporaryFolder('names'), 'data'),
    LEASEHOLD_HTTP_ADDR: '127.0.0.1:0',
    LEASEHOLD_GRPC_ADDR: '127.0.0.1:0',
  };
  const config = readConfig(flags, {});
  const server = await startServer(config, silentLog);
  try {
    const url = `http://${server.http.host}:${server.http.port}`;
    const api = JSON.parse(await textFrom(`${url}/openapi.json`)) as OpenApi;
    return {
      metrics: metricNames(server.metrics.registry.declared),
      'REST routes': restNames(api),
      'REST schemas': restSchemaNames(api),
    };
  } finally {
    await server.stop();
  }
}

async function textFrom(url: string): Promise<string> {
  const answer = await fetch(url);
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}: ${text}`);
  return text;
}

const metricNames = (metrics: readonly Declared[]): string[] =>
  metrics.map(({ name, kind, labelNames }) =>
    labelNames.length === 0 ? `${name} = ${kind}` : `${name} = ${kind} {${labelNames.toSorted().join(', ')}}`,
  );

function settingNames(): string[] {
  return Object.values(settings).map(({ variable, default: value }) => {
    const flags = [...flagVariables].flatMap(([flag, of]) => (of === variable ? `--${flag}` : []));
    return `${variable} = ${[...flags, 'default'].join(' ')} ${defaultText(value)}`;
  });
}

function defaultText(value: (typeof settings)[keyof typeof settings]['default']): string {
  if (value === undefined) return 'nothing';
  if (typeof value !== 'object') return String(value);
  return 'port' in value ? `${value.host}:${value.port}` : JSON.stringify(value);
}

/** Variables that only commands read. */
const otherVariables = (): string[] => [
  `${urlVariable} = default ${defaultUrl}`,
  ownerVariable,
  agentPidVariable,
  folderVariable,
  onUnreachableVariable,
];

async function commandNames(entries: readonly Entry[], above: string): Promise<string[]> {
  const lines: string[] = [];
  for (const { name, load } of entries) {
    const { flags, verbs = [], commands: below = [] } = await load();
    const command = `${above} ${name}`;
    lines.push(command, ...flagNames(command, flags), ...(await commandNames(below, command)));
    for (const verb of verbs) {
      lines.push(`${command} ${verb.name}`, ...flagNames(`${command} ${verb.name}`, verb.flags));
    }
  }
  return lines;
}

const flagNames = (command: string, flags: FlagTypes): string[] =>
  Object.entries(flags).map(([flag, type]) => `${command} --${flag}${type === 'string' ? ' <value>' : ''}`);

function exitCodeNames(): string[] {
  const codes = (of: string, named: Readonly<Record<string, number>>) =>
    Object.entries(named).map(([name, code]) => `${of} ${name} = ${code}`);
  return [...codes('leasehold', exitCodes), ...codes('leasehold guard', guardCodes)];
}

function errorNames(): string[] {
  const context = { log: silentLog, method: 'any' };
  const line = (code: keyof typeof statuses, error: unknown) =>
    `${code} = HTTP ${statuses[code]}, gRPC ${grpcStatus[toConnectError(error, context).code]}`;
  return [
    ...errorCodes.map((code) => line(code, new DomainError(code, 'any'))),
    line('internal', new Error('any')),
  ];
}

/** The files of the services, and those of ours that they import. */
function protoFiles(): DescFile[] {
  const found = new Map<string, DescFile>();
  const add = (file: DescFile): void => {
    if (found.has(file.name) || !file.proto.package.startsWith('leasehold.')) return;
    found.set(file.name, file);
    for (const dependency of file.dependencies) add(dependency);
  };
  for (const service of [JobsService, LeasesService, StatsService, FileLeasesService]) add(service.file);
  return [...found.values()];
}

/** Maps have entries that no client sees. */
const withNested = (message: DescMessage): DescMessage[] => [
  message,
  ...message.nestedMessages.flatMap(withNested),
];

const enumsOf = (of: DescFile | DescMessage): readonly DescEnum[] =>
  of.kind === 'file' ? of.enums : of.nestedEnums;
