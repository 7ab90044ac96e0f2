/**
 * What file leases promise, as a small program that keeps everything in memory and its own time: the tests run the real
 * thing beside it. Nothing here looks at how the real thing does it.
 */

export type Answer =
  | { kind: 'granted' }
  | { kind: 'contended' | 'halted'; contention: number; paths: readonly string[] }
  | { kind: 'abandoned' }
  | { kind: 'refused'; code: string };

interface ModelOwner {
  alive: boolean;
  heardAt: number;
  /** Since when it has been idle; undefined where it has not stopped. */
  idleAt: number | undefined;
  lost: Set<string>;
}

interface ModelContention {
  id: number;
  owner: string;
  path: string;
  state: 'CONTENDED' | 'HALTED';
  deniedAt: number;
}

const refused = (code: string): Answer => ({ kind: 'refused', code });

export class FileModel {
  now = 0;
  readonly holders = new Map<string, string>();
  readonly #owners = new Map<string, ModelOwner>();
  #contentions: ModelContention[] = [];
  /** How many contentions there have been. */
  contentions = 0;

  pass(seconds: number): void {
    this.now += seconds;
    this.#settle();
  }

  acquire(name: string, paths: readonly string[]): Answer {
    const owner = this.#born(name);
    owner.heardAt = this.now;
    owner.idleAt = undefined;
    for (const path of paths) owner.lost.delete(path);
    const own = paths.flatMap((path) =>
      this.#contentions.filter((each) => each.owner === name && each.path === path),
    );
    const isWaiting = ({ state, deniedAt }: ModelContention) =>
      state === 'CONTENDED' && this.now < deniedAt + 180;
    const [halted] = own.filter(({ state }) => state === 'HALTED');
    if (halted) return this.#answer(halted.id, 'HALTED');
    const [waiting] = own.filter(isWaiting).toSorted((a, b) => b.deniedAt - a.deniedAt);
    if (waiting) return this.#answer(waiting.id, 'CONTENDED');
    const isLapsed = ({ deniedAt }: ModelContention) => this.now >= deniedAt + 780;
    this.#close(own.filter(isLapsed));
    const blocked = paths.filter((path) => (this.holders.get(path) ?? name) !== name);
    const due = own.filter((each) => !isLapsed(each) && blocked.includes(each.path));
    if (blocked.length === 0) {
      this.#close(own);
      for (const path of paths) this.holders.set(path, name);
      return { kind: 'granted' };
    }
    const [first] = due;
    if (first) {
      for (const each of due) each.state = 'HALTED';
      return this.#answer(first.id, 'HALTED');
    }
    const id = this.contentions++;
    for (const path of blocked)
      this.#contentions.push({ id, owner: name, path, state: 'CONTENDED', deniedAt: this.now });
    return this.#answer(id, 'CONTENDED');
  }

  /** What its heartbeat says: the files that were taken from it, or the code of its loss. */
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
    return { kind: 'granted' };
  }

  end(name: string): Answer {
    const owner = this.#owners.get(name);
    if (!owner) return refused('owner_not_found');
    if (owner.alive) this.#bury(name, owner);
    return { kind: 'granted' };
  }

  release(name: string, paths: readonly string[]): Answer {
    const owner = this.#owners.get(name);
    if (!owner) return refused('owner_not_found');
    for (const path of paths) {
      owner.lost.delete(path);
      if (this.holders.get(path) === name) this.holders.delete(path);
    }
    return { kind: 'granted' };
  }

  instruct(id: number, instruction: 'RETRY' | 'ABANDON' | 'FORCE_RELEASE'): Answer {
    const halted = this.#contentions.filter((each) => each.id === id && each.state === 'HALTED');
    const [first] = halted;
    if (!first) return refused('illegal_transition');
    if (instruction === 'ABANDON') {
      this.#close(halted);
      return { kind: 'abandoned' };
    }
    const isHeld = halted.some(({ path }) => this.holders.has(path));
    if (instruction === 'RETRY' && isHeld) return this.#answer(id, 'HALTED');
    for (const { path } of halted) {
      const holder = this.holders.get(path);
      if (holder !== undefined) this.#owners.get(holder)?.lost.add(path);
      this.holders.set(path, first.owner);
    }
    this.#close(halted);
    const owner = this.#owners.get(first.owner);
    if (owner?.idleAt !== undefined) owner.idleAt = this.now;
    return { kind: 'granted' };
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
    const owner = { alive: true, heardAt: this.now, idleAt: undefined, lost: new Set<string>() };
    this.#owners.set(name, owner);
    return owner;
  }

  #settle(): void {
    for (const [name, owner] of this.#owners) {
      if (!owner.alive) continue;
      if (this.now >= owner.heardAt + 60) this.#bury(name, owner);
      else if (owner.idleAt !== undefined && this.now >= owner.idleAt + 30) this.#empty(name);
    }
  }

  #bury(name: string, owner: ModelOwner): void {
    owner.alive = false;
    owner.lost.clear();
    this.#empty(name);
    this.#close(this.#contentions.filter((each) => each.owner === name));
  }

  #empty(name: string): void {
    for (const [path, holder] of this.holders) if (holder === name) this.holders.delete(path);
  }
}
