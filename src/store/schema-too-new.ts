/** This server is older than the schema allows its writers to be; see `schema-compatibility.ts`. */
export class SchemaTooNewError extends Error {
  override readonly name = 'SchemaTooNewError';
}
