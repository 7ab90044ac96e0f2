import type { EngineName } from '../support/engines.ts';
import type { Contest } from './contest.ts';
import type { LeaseSet } from './load/lease-set.ts';
import type { LoadProcess } from './load-process.ts';
import type { ServerProcess } from './server-process.ts';
import type { Sizes } from './sizes.ts';
import type { Stage, Store } from './stage.ts';
import type { Latency } from './stats.ts';
import type { Entrant } from './turns.ts';

/** One line of the report. */
export interface Figure {
  name: string;
  unit: string;
  /** One a round. */
  values: readonly number[];
  goal?: { atLeast: number } | { below: number } | undefined;
  latency?: Latency | undefined;
  /** Who took how much processor time for it. */
  cpu?: CpuShare | undefined;
  /** What is wrong, where the figure is worth nothing. */
  failure?: string | undefined;
}

/** Processor time in µs for each job or call, how many cores that was in all, and how many strangers took. */
export interface CpuShare {
  server?: number | undefined;
  database?: number | undefined;
  load: number;
  cores: number;
  otherCores: number;
}

export interface Served {
  server: ServerProcess;
  store: Store;
}

/** What a scenario has to work with. */
export interface Bench {
  engine: EngineName;
  sizes: Sizes;
  stage: Stage;
  load: LoadProcess;
  /** Starts a server on a store, for as long as the scenario; `name` is what its profile is called. */
  serve(store: Store, name?: string, how?: { unmetered: boolean }): Promise<ServerProcess>;
  /**
   * A server on a store that is empty but for the scenario's leases. In a smoke run it is the one that all scenarios share, and then not empty:
   * starting servers would take most of the time.
   */
  someServer(name?: string): Promise<Served>;
  /** The same on a store of its own in a smoke run as well, for what others would leave there to be counted. */
  ownServer(name?: string): Promise<Served>;
  /** Stops what these started for this scenario, so that it is not in the way of what follows. */
  stopServers(): Promise<void>;
  report(figure: Figure): void;
  /** Has a contest told of at the end of the run. */
  compare(contest: Contest): void;
  /** Says what this machine keeps from being measured. */
  note(line: string): void;
}

export interface Scenario {
  name: string;
  about: string;
  engines: readonly EngineName[];
  /** Those of a smoke run, where it is not all of them. */
  smokeEngines?: readonly EngineName[];
  /** Whether it is part of a quick run. */
  quick?: true;
  /** What lives in the store of `someServer`. No two scenarios have a set of the same number. */
  leases?(sizes: Sizes): readonly LeaseSet[];
  run(bench: Bench): Promise<void>;
  /** What is compared with another tree, one by one; undefined where nothing is. */
  compared?: Compared;
}

export interface Compared {
  unit: string;
  /** Each is a figure of one server, whose store is empty but for the scenario's leases. */
  entrants(bench: Playing, served: Served): readonly Entrant[];
}

/** As much as an entrant needs to play. */
export type Playing = Pick<Bench, 'engine' | 'sizes' | 'load'>;
