/** The services and messages of `proto/`, with their comments, from the descriptors that buf builds. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fromBinary } from '@bufbuild/protobuf';
import {
  type DescriptorProto,
  type EnumDescriptorProto,
  type FieldDescriptorProto,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  type FileDescriptorProto,
  FileDescriptorSetSchema,
  type MethodDescriptorProto,
} from '@bufbuild/protobuf/wkt';
import { anchor, code, paragraphs, table } from './markdown.ts';

/** Numbers of the fields of descriptors, of which the paths of comments are made. */
const at = {
  message: 4,
  enum: 5,
  service: 6,
  field: 2,
  nested: 3,
  nestedEnum: 4,
  value: 2,
  method: 2,
} as const;
const ownPackage = '.leasehold.v1.';

/** `TYPE_INT32` becomes `int32`. */
const scalarName = (type: FieldDescriptorProto_Type): string =>
  (FieldDescriptorProto_Type[type] ?? '').toLowerCase();

/** A comment as Markdown: lines that only wrap are joined. */
const plain = (comment: string): string =>
  comment
    .split('\n')
    .map((line) => line.replace(/^ /, '').trimEnd())
    .join('\n')
    .trim();

const inOneLine = (text: string): string => text.replaceAll(/\s*\n\s*/g, ' ');

const typeName = (name: string): string => {
  if (!name.startsWith(ownPackage)) return code(name.slice(1));
  const own = name.slice(ownPackage.length);
  return `[${own}](#${anchor(own)})`;
};

/** One file and its comments. */
class ProtoFile {
  readonly #file: FileDescriptorProto;
  readonly #comments = new Map<string, string>();

  constructor(file: FileDescriptorProto) {
    this.#file = file;
    for (const { path, leadingComments } of file.sourceCodeInfo?.location ?? [])
      if (leadingComments !== '') this.#comments.set(path.join('.'), plain(leadingComments));
  }

  get services(): string {
    return paragraphs(
      ...this.#file.service.map(({ name, method }, i) => {
        const path = [at.service, i];
        return paragraphs(
          `## ${name}`,
          this.#comment(path),
          ...method.map((each, k) => this.#method(each, [...path, at.method, k])),
        );
      }),
    );
  }

  get messages(): string {
    return paragraphs(
      ...this.#file.messageType.map((message, i) => this.#message(message, [at.message, i])),
      ...this.#file.enumType.map((type, i) => this.#enum(type, [at.enum, i])),
    );
  }

  #comment(path: readonly number[]): string {
    return this.#comments.get(path.join('.')) ?? '';
  }

  #method(method: MethodDescriptorProto, path: readonly number[]): string {
    const side = (isStream: boolean, type: string) => `${isStream ? 'stream of ' : ''}${typeName(type)}`;
    const request = side(method.clientStreaming, method.inputType);
    const answer = side(method.serverStreaming, method.outputType);
    return paragraphs(`### ${method.name}`, `${request} → ${answer}`, this.#comment(path));
  }

  #message(message: DescriptorProto, path: readonly number[], prefix = ''): string {
    const name = `${prefix}${message.name}`;
    const rows = message.field.map((field, i) => [
      code(field.name),
      this.#type(field, message),
      inOneLine(this.#comment([...path, at.field, i])),
    ]);
    return paragraphs(
      `### ${name}`,
      this.#comment(path),
      rows.length > 0 ? table(['Field', 'Type', 'Description'], rows) : 'No fields.',
      ...message.nestedType.map((nested, i) =>
        nested.options?.mapEntry ? '' : this.#message(nested, [...path, at.nested, i], `${name}.`),
      ),
      ...message.enumType.map((nested, i) => this.#enum(nested, [...path, at.nestedEnum, i], `${name}.`)),
    );
  }

  #type(field: FieldDescriptorProto, message: DescriptorProto): string {
    const { type, label, oneofIndex, proto3Optional } = field;
    const named = type === FieldDescriptorProto_Type.MESSAGE || type === FieldDescriptorProto_Type.ENUM;
    const entry = message.nestedType.find(
      ({ name, options }) => options?.mapEntry && field.typeName.endsWith(`.${message.name}.${name}`),
    );
    if (entry) {
      const [key, value] = entry.field.map((each) => this.#type(each, entry));
      return `map of ${key} to ${value}`;
    }
    const name = named ? typeName(field.typeName) : scalarName(type);
    if (label === FieldDescriptorProto_Label.REPEATED) return `repeated ${name}`;
    if (proto3Optional) return `optional ${name}`;
    const isChoice = Object.hasOwn(field, 'oneofIndex') && message.oneofDecl[oneofIndex] !== undefined;
    return isChoice ? `${name}, one of ${code(message.oneofDecl[oneofIndex]?.name ?? '')}` : name;
  }

  #enum({ name, value }: EnumDescriptorProto, path: readonly number[], prefix = ''): string {
    const rows = value.map((each, i) => [
      code(each.name),
      String(each.number),
      inOneLine(this.#comment([...path, at.value, i])),
    ]);
    return paragraphs(
      `### ${prefix}${name}`,
      this.#comment(path),
      table(['Value', 'Number', 'Description'], rows),
    );
  }
}

export async function grpcSections(root: string): Promise<Record<string, string>> {
  const buf = join(root, 'node_modules/.bin/buf');
  const { stdout } = await promisify(execFile)(buf, ['build', 'proto', '--output', '-#format=binpb'], {
    cwd: root,
    encoding: 'buffer',
    maxBuffer: 64 * 1024 * 1024,
  });
  const files = fromBinary(FileDescriptorSetSchema, stdout)
    .file.filter(({ package: name }) => `.${name}.` === ownPackage)
    .map((file) => new ProtoFile(file));
  return {
    'grpc-services': paragraphs(...files.map(({ services }) => services)),
    'grpc-messages': paragraphs(...files.map(({ messages }) => messages)),
  };
}
