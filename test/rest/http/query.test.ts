import { expect } from 'chai';
import Type from 'typebox';
import { DomainError } from '../../../src/domain/errors.ts';
import { optional } from '../../../src/domain/requests/scheduler.ts';
import { parser } from '../../../src/domain/requests/validator.ts';
import { fromQuery, Query } from '../../../src/rest/http/query.ts';

describe('the parser of queries', () => {
  const schema = Type.Object({
    word: optional(Type.String({ maxLength: 5 })),
    limit: optional(Type.Integer({ minimum: 1 })),
    flag: optional(Type.Boolean()),
    state: optional(Type.Array(Type.Enum(['A', 'B']), { maxItems: 3 })),
  });
  const check = parser(schema);
  const read = (text: string) => fromQuery(schema, check, new Query(text));

  it('reads query parameters in the types of their schema', () => {
    expect(read('word=12&limit=34&flag=true&state=A&state=B,A')).to.deep.equal({
      word: '12',
      limit: 34,
      flag: true,
      state: ['A', 'B', 'A'],
    });
    expect(read('flag=false')).to.deep.equal({ flag: false });
  });

  it('refuses badly percent-encoded parameters of the schema, and ignores others (S6)', () => {
    for (const text of [
      'word=%ff',
      'word=a%',
      'word=%zz',
      'limit=%c0%af',
      'w%6Frd=%ff',
      'word=a&word=%E0%A4%A',
    ])
      expect(() => read(text), text)
        .to.throw(DomainError, /: is not properly percent-encoded$/)
        .with.property('code', 'invalid_request');
    expect(read('word=%C3%A9+%25&unknown=%ff&%ff=1&=%')).to.deep.equal({ word: 'é %' });
  });

  it('treats an empty parameter as absent, and takes the first of several', () => {
    expect(read('word=&limit=&flag=&state=,&unknown=1&__proto__=2')).to.deep.equal({ state: [] });
    expect(read('limit=&limit=5&limit=6&word=a&word=b')).to.deep.equal({ limit: 5, word: 'a' });
  });

  for (const [text, field] of [
    ['word=longer', 'word'],
    ['word=%00', 'word'],
    ['limit=1.5', 'limit'],
    ['limit=many', 'limit'],
    ['limit=1e3', 'limit'],
    ['limit=99999999999999999999', 'limit'],
    ['flag=yes', 'flag'],
    ['state=C', 'state'],
    ['state=A,b', 'state'],
    ['state=A,A,A,A', 'state'],
  ] as const) {
    it(`refuses a query and names only the parameter: ${text}`, () => {
      const refused = (() => {
        try {
          return read(text);
        } catch (error) {
          return error;
        }
      })();
      expect(refused).to.be.instanceOf(DomainError);
      const { code, detail, field: named } = refused as DomainError;
      expect(code).to.equal('invalid_request');
      expect(named).to.equal(field);
      expect(detail).to.match(new RegExp(`^${field}: must `));
    });
  }
});
