import { DomainError } from '../../domain/errors.ts';

/** The path is one of ours, the method is not one of its. HTTP wants to be told which are. */
export class MethodNotAllowed extends DomainError {
  readonly allowed: string;

  constructor(detail: string, allowed: string) {
    super('method_not_allowed', detail);
    this.allowed = allowed;
  }
}
