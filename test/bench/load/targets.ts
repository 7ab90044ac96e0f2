/** Connections to the servers under load. They stay open from one round to the next. */
import { connect } from './connect.ts';
import { LeanHttpConnection } from './lean-http.ts';
import type { ClientKind, Link } from './link.ts';

export interface GrpcTarget {
  address: string;
  client: ClientKind;
  connections: number;
}

const links = new Map<string, Link[]>();
const httpConnections = new Map<string, LeanHttpConnection[]>();

export const newLinks = ({ address, client, connections }: GrpcTarget): Link[] =>
  Array.from({ length: connections }, () => connect(client, address));

export function linksTo(target: GrpcTarget): Link[] {
  const name = `${target.client} ${target.connections} ${target.address}`;
  const open = links.get(name) ?? newLinks(target);
  links.set(name, open);
  return open;
}

export function httpTo(address: string, connections: number): LeanHttpConnection[] {
  const name = `${connections} ${address}`;
  const open =
    httpConnections.get(name) ?? Array.from({ length: connections }, () => new LeanHttpConnection(address));
  httpConnections.set(name, open);
  return open;
}

export function closeConnections(): void {
  for (const link of [...links.values()].flat()) link.close();
  for (const connection of [...httpConnections.values()].flat()) connection.close();
  links.clear();
  httpConnections.clear();
}

export const nth = <T>(items: readonly T[], n: number): T => items[n % items.length] as T;
