/**
 * Model of the guarantees of file leases. It keeps its state in memory and has its own clock; tests run the
 * server beside it. The model shares no code with the implementation.
 */

export type Answer =
  | { kind: 'granted' }
  | { kind: 'contended' | 'halted'; contention: number; paths: readonly string[] }
  | { kind: 'abandoned' }
  | { kind: 'kept' }
  | { kind: 'refused'; code: string };

interface ModelOwner {
  alive: boolean;
  heardAt: number;
  bornAt: number;
  /** Start of the idle period; undefined if the owner has not stopped. */
  idleAt: number | undefined;
  /** The owner has released its files because it was idle. */
  isRested: boolean;
  lost: Set<string>;
}

type Instruction = 'RETRY' | 'ABANDON' | 'FORCE_RELEASE';

interface ModelContention {
  id: number;
  owner: string;
  path: string;
  state: 'CONTENDED' | 'HALTED';
  deniedAt: number;
  /** Instruction stored while the owner was not alive. */
  kept: Instruction | undefined;
}

/** A lent file: its lenders, oldest first, and the start of the first loan. */
interface ModelLoan {
  lenders: string[];
  since: number;
}

const refused = (code: string): Answer => ({ kind: 'refused', code });

export class FileModel {
  now = 0;
  readonly holders = new Map<string, string>();
  /** Owners that are losing all their files in this step, so no file returns to them. */
  readonly #leaving = new Set<string>();
  readonly #loans = new Map<string, ModelLoan>();
  /** The parent of each sub-agent. */
  readonly #parents: Readonly<Record<string, string>>;
  readonly #owners = new Map<string, ModelOwner>();
  #contentions: ModelContention[] = [];
  /** Number of contentions so far. */
  contentions = 0;

  constructor(parents: Readonly<Record<string, string>> = {}) {
    this.#parents = parents;
  }

  pass(seconds: number): void {
    this.now += seconds;
    this.#settle();
  }

  acquire(name: string, paths: readonly string[]): Answer {
    const owner = this.#born(name);
    owner.heardAt = this.now;
    owner.idleAt = undefined;
    owner.isRested = false;
    for (const path of paths) owner.lost.delete(path);
    let own = paths.flatMap((path) =>
      this.#contentions.filter(
        (each) => each.owner === name && each.path === path && this.holders.get(path) !== name,
      ),
    );
    const isWaiting = ({ state, deniedAt }: ModelContention) =>
      state === 'CONTENDED' && this.now < deniedAt + 180;
    for (const { id } of own.filter(({ state, kept }) => state === 'HALTED' && kept)) this.#applyKept(id);
    own = own.filter((each) => this.#contentions.includes(each));
    const [halted] = own.filter(({ state }) => state === 'HALTED');
    if (halted) return this.#answer(halted.id, 'HALTED');
    const [waiting] = own.filter(isWaiting).toSorted((a, b) => b.deniedAt - a.deniedAt || b.id - a.id);
    if (waiting) return this.#answer(waiting.id, 'CONTENDED');
    const isLapsed = ({ deniedAt }: ModelContention) => this.now >= deniedAt + 780;
    this.#close(own.filter(isLapsed));
    const blocked = paths.filter(
      (path) => (this.holders.get(path) ?? name) !== name && !this.#lends(path, name),
    );
    const due = own.filter((each) => !isLapsed(each) && blocked.includes(each.path));
    if (blocked.length === 0) {
      this.#close(own);
      for (const path of paths) this.#give(path, name);
      return { kind: 'granted' };
    }
    const [first] = due;
    if (first) {
      for (const each of due) each.state = 'HALTED';
      return this.#answer(first.id, 'HALTED');
    }
    const id = this.contentions++;
    for (const path of blocked)
      this.#contentions.push({
        id,
        owner: name,
        path,
        state: 'CONTENDED',
        deniedAt: this.now,
        kept: undefined,
      });
    return this.#answer(id, 'CONTENDED');
  }

  /** The heartbeat's answer: the files taken from the owner, or the code of its loss. */
  beat(name: string): string[] | string {
    const owner = this.#owners.get(name);
    if (!owner) return 'owner_not_found';
    if (!owner.alive) return 'owner_not_alive';
    owner.heardAt = this.now;
    return [...owner.lost].sort();
  }

  show(name: string, what: 'activity' | 'stop'): Answer {
    const owner = this.#owners.get(name);
    if (!owner) return refused('owner_not_found');
    if (!owner.alive) return refused('owner_not_alive');
    owner.heardAt = this.now;
    owner.idleAt = what === 'stop' ? (owner.idleAt ?? this.now) : undefined;
    if (what === 'activity') owner.isRested = false;
    return { kind: 'granted' };
  }

  end(name: string): Answer {
    const owner = this.#owners.get(name);
    if (!owner) return refused('owner_not_found');
    if (owner.alive) this.#bury(name, owner);
    return { kind: 'granted' };
  }

  release(name: string, paths: readonly string[], isCommitted = true): Answer {
    const owner = this.#owners.get(name);
    if (!owner) return refused('owner_not_found');
    for (const path of paths) {
      owner.lost.delete(path);
      if (this.holders.get(path) !== name) continue;
      if (isCommitted) this.#free(path);
      else this.#giveUp(path);
    }
    return { kind: 'granted' };
  }

  instruct(id: number, instruction: Instruction): Answer {
    const halted = this.#contentions.filter((each) => each.id === id && each.state === 'HALTED');
    const [first] = halted;
    if (!first) return refused('illegal_transition');
    if (instruction === 'ABANDON') {
      this.#close(halted);
      return { kind: 'abandoned' };
    }
    if (!this.#owners.get(first.owner)?.alive) {
      for (const each of halted) each.kept = instruction;
      return { kind: 'kept' };
    }
    for (const each of halted) each.kept = undefined;
    return this.#decide(id, halted, instruction);
  }

  #applyKept(id: number): void {
    const kept = this.#contentions.filter((each) => each.id === id && each.state === 'HALTED' && each.kept);
    const [first] = kept;
    if (!first?.kept) return;
    const instruction = first.kept;
    for (const each of kept) each.kept = undefined;
    this.#decide(id, kept, instruction);
  }

  #decide(id: number, halted: readonly ModelContention[], instruction: Instruction): Answer {
    const [{ owner: name }] = halted as [ModelContention];
    const isBlocked = (path: string) => this.holders.has(path) && !this.#lends(path, name);
    if (instruction === 'RETRY' && halted.some(({ path }) => isBlocked(path)))
      return this.#answer(id, 'HALTED');
    for (const { path } of halted) {
      const holder = this.holders.get(path);
      if (holder !== undefined && isBlocked(path)) {
        this.#owners.get(holder)?.lost.add(path);
        this.#free(path);
      }
      this.#give(path, name);
    }
    this.#close(halted);
    this.#restart(this.#owners.get(name));
    return { kind: 'granted' };
  }

  /** A file granted without a request restarts the 30 seconds of an owner that has stopped. */
  #restart(owner: ModelOwner | undefined): void {
    if (owner?.idleAt === undefined) return;
    owner.idleAt = this.now;
    owner.isRested = false;
  }

  /** Whether the file's holder is the parent of this owner and not a borrower of the owner's own file. */
  #lends(path: string, name: string): boolean {
    const holder = this.holders.get(path);
    if (holder === undefined || this.#parents[name] !== holder) return false;
    return !this.#loans.get(path)?.lenders.includes(name);
  }

  /** Grants a file to an owner. The file is free, the owner's own, or its parent's. */
  #give(path: string, name: string): void {
    const holder = this.holders.get(path);
    if (holder === name) return;
    if (holder !== undefined) {
      const { lenders, since } = this.#loans.get(path) ?? { lenders: [], since: this.now };
      this.#loans.set(path, { lenders: [...lenders, holder], since });
    }
    this.holders.set(path, name);
  }

  #free(path: string): void {
    this.holders.delete(path);
    this.#loans.delete(path);
  }

  /**
   * Release without a commit: a lent file returns to the last lender that is alive and has not died since the
   * loan.
   */
  #giveUp(path: string): void {
    const loan = this.#loans.get(path);
    this.#free(path);
    for (const lenders = [...(loan?.lenders ?? [])]; loan && lenders.length > 0; ) {
      const name = lenders.pop() as string;
      const owner = this.#owners.get(name);
      if (!owner?.alive || this.#leaving.has(name) || owner.bornAt > loan.since) continue;
      const open = this.#contentions.filter((each) => each.owner === name && each.path === path);
      if (open.some(({ state }) => state === 'HALTED')) continue;
      this.#close(open);
      this.holders.set(path, name);
      if (lenders.length > 0) this.#loans.set(path, { lenders, since: loan.since });
      this.#restart(owner);
      return;
    }
  }

  #answer(contention: number, state: ModelContention['state']): Answer {
    const files = this.#contentions.filter((each) => each.id === contention && each.state === state);
    const paths = files.map(({ path }) => path).sort();
    return { kind: state === 'HALTED' ? 'halted' : 'contended', contention, paths };
  }

  #close(closed: readonly ModelContention[]): void {
    this.#contentions = this.#contentions.filter((each) => !closed.includes(each));
  }

  #born(name: string): ModelOwner {
    const known = this.#owners.get(name);
    if (known?.alive) return known;
    const owner = {
      alive: true,
      heardAt: this.now,
      bornAt: this.now,
      idleAt: undefined,
      isRested: false,
      lost: new Set<string>(),
    };
    this.#owners.set(name, owner);
    return owner;
  }

  /**
   * Owners due at the same time are handled together: none of them receives a file that another one loses.
   */
  #settle(): void {
    const living = [...this.#owners].filter(([, owner]) => owner.alive);
    const dead = living.filter(([, { heardAt }]) => this.now >= heardAt + 60);
    for (const [, owner] of dead) owner.alive = false;
    const idle = living.filter(
      ([, { alive, idleAt, isRested }]) =>
        alive && !isRested && idleAt !== undefined && this.now >= idleAt + 30,
    );
    for (const [name] of idle) this.#leaving.add(name);
    for (const [name, owner] of dead) this.#bury(name, owner);
    for (const [name, owner] of idle) {
      this.#empty(name);
      owner.isRested = true;
    }
    this.#leaving.clear();
  }

  #bury(name: string, owner: ModelOwner): void {
    owner.alive = false;
    owner.lost.clear();
    this.#empty(name);
  }

  #empty(name: string): void {
    for (const [path, holder] of [...this.holders]) if (holder === name) this.#giveUp(path);
  }
}
