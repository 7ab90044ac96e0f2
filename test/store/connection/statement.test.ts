/** The guarantee: a parameter has one name in all parts of a statement, and one number in the sent text. */
import { globSync, readFileSync } from 'node:fs';
import { expect } from 'chai';
import { preparedStatements } from '../../../src/store/connection/prepared-client.ts';
import { preparedStatement, statement } from '../../../src/store/connection/statement.ts';
import { onEveryEngine } from '../../support/engines.ts';

describe('Statement', () => {
  it('numbers the parameters in the order of their names, each once', () => {
    const { text } = statement(
      ['ids', 'limit'],
      'select @limit::int, @ids from t where id = any (@ids) limit @limit',
    );
    expect(text).to.equal('select $2::int, $1 from t where id = any ($1) limit $2');
  });

  it('binds the values in the order of the numbers', () => {
    const find = statement(['ids', 'limit'], 'select @limit, @ids');
    expect(find.valuesOf({ limit: 3, ids: '{1}' })).to.deep.equal(['{1}', 3]);
  });

  it('leaves casts, slices and the operators of arrays and JSON alone', () => {
    const text = "select a <@ @names::text[], b @> '{}', c[:8], d @@ '$', e::int from t";
    expect(statement(['names'], text).text).to.equal(text.replace('@names', '$1'));
  });

  it('does not take the beginning of a name for another name', () => {
    expect(statement(['id', 'ids'], 'select @ids, @id').text).to.equal('select $2, $1');
  });

  it('refuses a name that is not listed, and a listed name that the text lacks', () => {
    expect(() => statement(['id'], 'select @id, @other')).to.throw('unknown parameter @other');
    expect(() => statement(['id', 'other'], 'select @id')).to.throw('does not use other');
  });

  it('refuses a name that is listed twice, which would leave a number without a parameter', () => {
    expect(() => statement(['id', 'id'], 'select @id')).to.throw('a parameter twice: id, id');
  });

  it('names the parameters of every statement in src/store/sql', () => {
    const folder = new URL('../../../src/store/sql/', import.meta.url);
    const files = globSync('**/*.ts', { cwd: folder });
    const numbered = files.filter((file) => /\$\d/.test(readFileSync(new URL(file, folder), 'utf8')));
    expect(files).to.have.length.above(40);
    expect(numbered).to.deep.equal([]);
  });

  onEveryEngine((kind) => {
    it('runs with its values, prepared or planned for them', async () => {
      await using store = await kind.open();
      const text = 'select @a::int - @b::int as difference, @a::int as a';
      const made = preparedStatement(['b', 'a'], text);
      expect(preparedStatements()).to.include(made.text);
      for (const one of [made, statement(['a', 'b'], `${text} -- planned`)]) {
        const rows = await one.query(store.database, { a: 5, b: 3 });
        expect(rows).to.deep.equal([{ difference: 2, a: 5 }]);
      }
    });
  });
});
