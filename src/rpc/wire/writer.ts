/**
 * Writes protobuf's wire format into one reused buffer.
 *
 * protobuf-es describes messages while it writes them, which takes 9 µs for a job; responses with jobs are
 * the larger part of what a busy server sends. Only messages on that path are written with this class. The
 * tests read its output with protobuf-es. `encode` returns a copy.
 */
import { ListValueSchema, StructSchema, TimestampSchema, ValueSchema } from '@bufbuild/protobuf/wkt';
import type { Json, JsonObject } from '../../domain/jobs/job.ts';
import { numbersOf } from './fields.ts';
import { wireType } from './reader.ts';

const { varint, fixed64, delimited } = wireType;
const timestampField = numbersOf(TimestampSchema);
const structField = numbersOf(StructSchema);
const valueField = numbersOf(ValueSchema);
const listField = numbersOf(ListValueSchema);
/** An entry of a map has the same two fields in every message, and no descriptor. */
const entryField = { key: 1, value: 2 } as const;

/**
 * A string takes at most three bytes for a UTF-16 unit. A longer string than this is measured instead of
 * estimated.
 */
const shortText = 42;

const firstBytes = 64 * 1024;
/** A buffer that has grown beyond this size is replaced. */
const keptBytes = 1024 * 1024;

export class WireWriter {
  #buffer = Buffer.allocUnsafe(firstBytes);
  #at = 0;

  /** The bytes of one message: only what `write` writes, without remains of an earlier message. */
  encode(write: () => void): Buffer {
    this.#at = 0;
    write();
    const bytes = Buffer.from(this.#buffer.subarray(0, this.#at));
    if (this.#buffer.length > keptBytes) this.#buffer = Buffer.allocUnsafe(firstBytes);
    return bytes;
  }

  /** Bytes of the message that is being written. */
  get length(): number {
    return this.#at;
  }

  /** A text field; omitted if the text is empty and the field has no presence. */
  text(field: number, value: string): void {
    if (value !== '') this.presentText(field, value);
  }

  presentText(field: number, value: string): void {
    this.#tag(field, delimited);
    this.#reserve(value.length * 3 + 5);
    if (value.length <= shortText) {
      const written = this.#buffer.write(value, this.#at + 1);
      this.#buffer[this.#at] = written;
      this.#at += written + 1;
    } else {
      this.#varint(Buffer.byteLength(value));
      this.#at += this.#buffer.write(value, this.#at);
    }
  }

  /** A non-negative whole number: an int32, an enum, a bool, an int64; omitted if it is 0. */
  whole(field: number, value: number): void {
    if (value !== 0) this.presentWhole(field, value);
  }

  presentWhole(field: number, value: number): void {
    this.#tag(field, varint);
    this.#varint(value);
  }

  double(field: number, value: number): void {
    this.#tag(field, fixed64);
    this.#reserve(8);
    this.#at = this.#buffer.writeDoubleLE(value, this.#at);
  }

  /** An embedded message with the content that `write` writes. */
  message(field: number, write: () => void): void {
    this.#tag(field, delimited);
    const start = this.#at;
    this.#reserve(1);
    this.#at++;
    write();
    this.#close(start);
  }

  /** A `google.protobuf.Timestamp`. */
  timestamp(field: number, ms: number): void {
    const seconds = Math.floor(ms / 1000);
    this.message(field, () => {
      if (seconds >= 0) this.whole(timestampField.seconds, seconds);
      else this.#negative(timestampField.seconds, seconds);
      this.whole(timestampField.nanos, Math.round((ms - seconds * 1000) * 1e6));
    });
  }

  /** A `google.protobuf.Struct`. */
  struct(field: number, object: JsonObject): void {
    this.message(field, () => this.#members(object));
  }

  /** A `google.protobuf.Value`. */
  value(field: number, value: Json): void {
    this.message(field, () => this.#value(value));
  }

  #members(object: JsonObject): void {
    for (const key of Object.keys(object)) {
      this.message(structField.fields, () => {
        this.text(entryField.key, key);
        this.message(entryField.value, () => this.#value(object[key] as Json));
      });
    }
  }

  /** The content of a `google.protobuf.Value`. */
  #value(value: Json): void {
    if (typeof value === 'string') this.presentText(valueField.stringValue, value);
    else if (typeof value === 'number') this.double(valueField.numberValue, value);
    else if (typeof value === 'boolean') this.presentWhole(valueField.boolValue, value ? 1 : 0);
    else if (value === null) this.presentWhole(valueField.nullValue, 0);
    else if (Array.isArray(value)) this.message(valueField.listValue, () => this.#items(value));
    else this.message(valueField.structValue, () => this.#members(value));
  }

  #items(items: readonly Json[]): void {
    for (const item of items) this.message(listField.values, () => this.#value(item));
  }

  /**
   * Writes the length before a content that has been written, and moves the content if the length needs more
   * than one byte.
   */
  #close(start: number): void {
    const length = this.#at - start - 1;
    if (length < 0x80) {
      this.#buffer[start] = length;
      return;
    }
    let size = 1;
    for (let rest = length; rest >= 0x80; rest = Math.floor(rest / 0x80)) size++;
    this.#reserve(size - 1);
    this.#buffer.copyWithin(start + size, start + 1, this.#at);
    this.#at = start;
    this.#varint(length);
    this.#at += length;
  }

  #tag(field: number, type: number): void {
    this.#varint(field * 8 + type);
  }

  #varint(value: number): void {
    this.#reserve(10);
    let rest = value;
    while (rest >= 0x80) {
      this.#buffer[this.#at++] = (rest % 0x80) + 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#buffer[this.#at++] = rest;
  }

  /** Negative numbers are written as 64-bit two's complement. */
  #negative(field: number, value: number): void {
    this.#tag(field, varint);
    this.#reserve(10);
    let rest = BigInt.asUintN(64, BigInt(value));
    while (rest >= 0x80n) {
      this.#buffer[this.#at++] = Number(rest % 0x80n) + 0x80;
      rest /= 0x80n;
    }
    this.#buffer[this.#at++] = Number(rest);
  }

  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#at + bytes));
    this.#buffer.copy(larger, 0, 0, this.#at);
    this.#buffer = larger;
  }
}
