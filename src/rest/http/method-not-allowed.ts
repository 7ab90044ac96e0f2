import { DomainError } from '../../domain/errors.ts';

/** The path exists, and the method is not allowed for it. HTTP requires a list of the allowed methods. */
export class MethodNotAllowed extends DomainError {
  readonly allowed: string;

  constructor(detail: string, allowed: string) {
    super('method_not_allowed', detail);
    this.allowed = allowed;
  }
}
