/**
 * Gives verified tokens and certificates their rights, by the rules of the file of access rules.
 *
 * Guarantees: while the rules stay the same, an identity has one principal. After a change of the rules, the
 * next call of an identity has its new rights, and `isInForce` is false for a principal whose rights differ.
 */
import {
  type AccessRules,
  firstMatch,
  type Identity,
  principalOf,
  type RuleMatch,
} from '../../../domain/access/access-rules.ts';
import type { Principal } from '../../../domain/access/principal.ts';
import { DomainError } from '../../../domain/errors.ts';

interface Mapped {
  rules: AccessRules;
  principal: Principal;
}

export class IdentityMapper {
  readonly #rules: () => AccessRules;
  readonly #mapped = new WeakMap<Identity, Mapped>();
  readonly #identities = new WeakMap<Principal, Identity>();

  constructor(rules: () => AccessRules) {
    this.#rules = rules;
  }

  /** Throws `permission_denied` if no rule matches. */
  principalOf(identity: Identity): Principal {
    const rules = this.#rules();
    const known = this.#mapped.get(identity);
    if (known?.rules === rules) return known.principal;
    const match = firstMatch(rules, identity);
    if (!match) throw new DomainError('permission_denied', 'no access rule matches the identity');
    const principal = principalOf(identity, match, lineageOf(identity, match));
    this.#mapped.set(identity, { rules, principal });
    this.#identities.set(principal, identity);
    return principal;
  }

  /** Whether the rules still give the principal the same rights. */
  isInForce(principal: Principal): boolean {
    const identity = this.#identities.get(principal);
    if (!identity) return false;
    const match = firstMatch(this.#rules(), identity);
    if (!match) return false;
    const now = principalOf(identity, match, principal.holder ?? '');
    return JSON.stringify(now) === JSON.stringify(principal);
  }
}

/** The same for every token of a subject and every certificate of a name, as the lineage of a key is. */
const lineageOf = (identity: Identity, { name }: RuleMatch): string =>
  JSON.stringify(identity.kind === 'jwt' ? ['jwt', identity.issuer, name] : ['cert', name]);
