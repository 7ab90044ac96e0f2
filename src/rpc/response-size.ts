import {
  create,
  type DescMessage,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import { limits } from '../domain/limits.ts';

/** The overhead of a message in a repeated field: its tag and its length. */
const overheadBytes = 6;

/** The size of a message as an element of a response. */
export const bytesOf = <Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): number =>
  toBinary(schema, message).length + overheadBytes;

export interface FittingPage<Desc extends DescMessage> {
  messages: MessageShape<Desc>[];
  nextCursor: string | undefined;
}

interface PageOf<Desc extends DescMessage, Item> {
  schema: Desc;
  messageOf: (item: Item) => MessageInitShape<Desc>;
  /** The cursor of a page that ends with this item. Items with the same cursor stay on one page. */
  cursorOf: (item: Item) => string;
}

/**
 * As many items of a page as fit into `limits.answerBytes`, and at least those of one cursor; the cursor
 * leads to the rest. The size is that of the encoded messages: a Struct of short numbers takes five times as
 * much as its JSON.
 */
export function pageThatFits<Desc extends DescMessage, Item>(
  { items, nextCursor }: { items: readonly Item[]; nextCursor: string | null },
  { schema, messageOf, cursorOf }: PageOf<Desc, Item>,
): FittingPage<Desc> {
  const messages: MessageShape<Desc>[] = [];
  let size = 0;
  /** The number of messages before the last change of the cursor. */
  let whole = 0;
  for (const [i, item] of items.entries()) {
    const previous = items[i - 1];
    if (previous !== undefined && cursorOf(previous) !== cursorOf(item)) whole = i;
    const message = create(schema, messageOf(item));
    size += bytesOf(schema, message);
    const last = items[whole - 1];
    if (size > limits.answerBytes && last !== undefined)
      return { messages: messages.slice(0, whole), nextCursor: cursorOf(last) };
    messages.push(message);
  }
  return { messages, nextCursor: nextCursor ?? undefined };
}

/**
 * Splits messages into groups of at most `bytesMax` bytes and at least one message. Without messages there is
 * one empty group.
 */
export function groupsThatFit<Desc extends DescMessage>(
  schema: Desc,
  messages: readonly MessageShape<Desc>[],
  bytesMax: number,
): MessageShape<Desc>[][] {
  let group: MessageShape<Desc>[] = [];
  const groups = [group];
  let size = 0;
  for (const message of messages) {
    const bytes = bytesOf(schema, message);
    if (group.length > 0 && size + bytes > bytesMax) {
      group = [];
      groups.push(group);
      size = 0;
    }
    group.push(message);
    size += bytes;
  }
  return groups;
}
