/*
 * Shows /openapi.json as a page: what may be asked of each route, what it answers, an example, and a line for curl. It
 * is all made of text nodes, so that nothing in the description can become part of the page but words.
 */
(async () => {
  const byId = (id) => document.getElementById(id);

  /**
   * An element with its attributes and children. Children may be nested lists; undefined, null and false are left out.
   * An object that is no node is an error: `append` would show it as `[object …]`.
   */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    for (const child of children.flat(Infinity)) {
      if (child === undefined || child === null || child === false) continue;
      if (typeof child === 'object' && !(child instanceof Node))
        throw new TypeError(`a child of <${tag}> is neither text nor a node`);
      element.append(typeof child === 'object' ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  /** Text in which each part between back-ticks becomes a code element. */
  const prose = (text) =>
    String(text)
      .split('`')
      .map((part, at) => (at % 2 === 1 ? make('code', {}, part) : part));

  /** A name that may be broken after its underscores and nowhere else, where there is room for its parts. */
  const breakable = (name) => name.split(/(?<=_)/).map((part) => [part, make('wbr')]);

  /** Text as paragraphs, which blank lines separate. */
  const paragraphs = (text) => text.split('\n\n').map((part) => make('p', {}, prose(part)));

  let description;

  /** What a reference points at, and the name by which it does. */
  function follow(thing) {
    if (!thing?.$ref) return thing ?? {};
    const parts = thing.$ref.split('/').slice(1);
    const found = parts.reduce((at, part) => at[part], description);
    return { ...found, ...thing, properties: { ...found.properties, ...thing.properties } };
  }

  const nameOf = (schema) => schema.$ref?.split('/').at(-1);

  /** The type of a schema in a few words. */
  function typeOf(schema) {
    if (schema.$ref) return nameOf(schema);
    if (schema.anyOf) return schema.anyOf.map(typeOf).join(' or ');
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.type === 'array') return `list of ${typeOf(schema.items ?? {})}`;
    const types = [schema.type ?? 'any JSON'].flat();
    return `${types.join(' or ')}${schema.format ? ` (${schema.format})` : ''}`;
  }

  /** `1 to 200 characters`; an empty list without a bound. */
  function range(from, to, unit) {
    const shown = (number) => number.toLocaleString('en');
    const counted = (number) => (unit ? `${shown(number)} ${unit}${number === 1 ? '' : 's'}` : shown(number));
    if (from !== undefined && to !== undefined)
      return [from === to ? `exactly ${counted(to)}` : `${shown(from)} to ${counted(to)}`];
    if (from !== undefined) return [`at least ${counted(from)}`];
    return to === undefined ? [] : [`at most ${counted(to)}`];
  }

  /** The limits of a schema, in words. */
  function limitsOf(schema) {
    const words = [];
    if (schema.enum) words.push(schema.enum.map((word) => JSON.stringify(word)).join(', '));
    words.push(...range(schema.minimum, schema.maximum));
    words.push(...range(schema.minLength, schema.maxLength, 'character'));
    words.push(...range(schema.minItems, schema.maxItems, 'item'));
    words.push(...range(undefined, schema.maxProperties, 'member'));
    if (schema.default !== undefined) words.push(`default ${JSON.stringify(schema.default)}`);
    if (schema.pattern === '\\S') words.push('not blank');
    if (schema.items && !schema.items.$ref)
      words.push(...limitsOf(schema.items).map((word) => `each: ${word}`));
    for (const choice of schema.anyOf ?? []) if (!choice.$ref) words.push(...limitsOf(choice));
    return words;
  }

  /** What is worth opening within a schema: the objects in it. */
  function objectsIn(schema) {
    if (schema.$ref) return [schema];
    if (schema.properties) return [schema];
    return [...(schema.anyOf ?? []), ...(schema.items ? [schema.items] : [])].flatMap(objectsIn);
  }

  function fieldRow(name, schema, isRequired, about = schema.description) {
    const limits = limitsOf(schema).join('; ');
    const within = objectsIn(schema).map((object) =>
      lazily(nameOf(object) ?? 'fields', () => schemaOf(object)),
    );
    return make(
      'tr',
      {},
      make(
        'th',
        { scope: 'row' },
        make('code', {}, breakable(name)),
        isRequired && make('span', { class: 'faint' }, ' required'),
      ),
      make('td', {}, typeOf(schema), limits && make('div', { class: 'faint' }, limits)),
      make('td', {}, prose(about ?? follow(schema).description ?? ''), within),
    );
  }

  const table = (caption, rows) =>
    make(
      'table',
      { 'aria-label': caption },
      make(
        'thead',
        {},
        make(
          'tr',
          {},
          ['Name', 'Type', 'Description'].map((head) => make('th', { scope: 'col' }, head)),
        ),
      ),
      make('tbody', {}, rows),
    );

  /** The fields of a schema, or those of each of its choices. */
  function schemaOf(schema) {
    const { properties, required = [], anyOf, description: about, items } = follow(schema);
    if (anyOf)
      return make(
        'div',
        {},
        anyOf.map((choice) =>
          lazily(`${typeOf(choice)}: ${follow(choice).description ?? ''}`, () => schemaOf(choice)),
        ),
      );
    if (items) return schemaOf(items);
    if (!properties) return make('p', { class: 'faint' }, prose(about ?? typeOf(schema)));
    const rows = Object.entries(properties).map(([name, field]) =>
      fieldRow(name, field, required.includes(name)),
    );
    return table('Fields', rows);
  }

  /** Something to be opened, made when it is: schemas are within each other, and deep. */
  function lazily(title, content) {
    const details = make('details', {}, make('summary', {}, prose(title)));
    const open = () => details.childNodes.length === 1 && details.append(content());
    details.addEventListener('toggle', open);
    return details;
  }

  const examplesOf = ({ example, examples = {} }) =>
    example === undefined
      ? Object.entries(examples).map(([name, { value }]) => [name, value])
      : [['example', example]];

  const block = (text) => make('pre', { tabindex: '0' }, make('code', {}, text));
  const json = (value) => block(JSON.stringify(value, null, 2));

  function curlLine(method, path, body) {
    const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
    const parts = ['curl'];
    if (method === 'put') parts.push('-X PUT');
    if (method === 'delete') parts.push('-X DELETE');
    parts.push(quoted(`${location.origin}${path}`));
    if (method === 'post' && !body) parts.push('-X POST');
    if (body) parts.push("-H 'content-type: application/json'", '-d', quoted(JSON.stringify(body)));
    return parts.join(' ');
  }

  function bodyPart(operation) {
    if (!operation.requestBody) return [];
    const { content, description: about, required } = operation.requestBody;
    const media = content['application/json'];
    return [
      make(
        'h4',
        {},
        'Body',
        make('span', { class: 'faint' }, prose(required ? ` required. ${about}` : ` ${about}`)),
      ),
      schemaOf(media.schema),
      examplesOf(media).map(([, value]) => json(value)),
    ];
  }

  function answerPart([status, answer]) {
    const { description: about, content = {}, headers = {} } = follow(answer);
    const [[type, media] = []] = Object.entries(content);
    const shown = () =>
      make(
        'div',
        {},
        type !== undefined && make('p', { class: 'faint' }, type),
        Object.keys(headers).map((name) =>
          make('p', {}, make('code', {}, name), prose(` ${headers[name].description}`)),
        ),
        media && [schemaOf(media.schema), examplesOf(media).map(([, value]) => json(value))],
      );
    return lazily(`${status} ${about.split('\n\n').join(' · ')}`, shown);
  }

  /** All that is said of an operation, with all that it points at. */
  function wordsOf(thing, seen = new Set()) {
    if (typeof thing !== 'object' || thing === null) return [thing];
    if (thing.$ref && seen.has(thing.$ref)) return [];
    seen.add(thing.$ref);
    const { $ref: _, ...whole } = follow(thing);
    return Object.entries(whole).flatMap(([key, value]) => [key, ...wordsOf(value, seen)]);
  }

  function operationOf(method, path, operation) {
    const { operationId: id, summary, description: about, parameters = [], responses } = operation;
    const [first] = operation.requestBody
      ? examplesOf(operation.requestBody.content['application/json'])
      : [];
    return make(
      'article',
      { id, 'data-words': [method, path, ...wordsOf(operation)].join(' ').toLowerCase() },
      make('h3', {}, make('a', { href: `#${id}` }, prose(summary))),
      make(
        'p',
        { class: 'route' },
        make('span', { class: `method ${method}` }, method.toUpperCase()),
        ` ${path}`,
      ),
      about && paragraphs(about),
      parameters.length > 0 && [
        make('h4', {}, 'Parameters'),
        table(
          'Parameters',
          parameters.map((one) =>
            fieldRow(`${one.name} (${one.in})`, one.schema, one.required, one.description),
          ),
        ),
      ],
      bodyPart(operation),
      make('h4', {}, 'Answers'),
      Object.entries(responses).map(answerPart),
      make('h4', {}, 'With curl'),
      block(curlLine(method, path, first?.[1])),
    );
  }

  function show() {
    const operations = Object.entries(description.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ method, path, operation })),
    );
    byId('version').textContent = description.info.version;
    byId('about').append(...paragraphs(description.info.description));
    for (const { name, description: about } of description.tags) {
      const own = operations.filter(({ operation }) => operation.tags.includes(name));
      if (own.length === 0) continue;
      const articles = own.map(({ method, path, operation }) => operationOf(method, path, operation));
      byId('operations').append(make('section', {}, make('h2', {}, name), paragraphs(about), articles));
      const links = own.map(({ method, operation }) =>
        make(
          'li',
          { 'data-for': operation.operationId },
          make(
            'a',
            { href: `#${operation.operationId}` },
            make('span', { class: method }, `${method.toUpperCase()} `),
            prose(operation.summary),
          ),
        ),
      );
      byId('contents').append(make('div', {}, make('h2', {}, name), make('ul', {}, links)));
    }
    search();
  }

  /** Leaves what has all the words that are looked for. */
  function search() {
    const words = byId('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const article of document.querySelectorAll('article')) {
      const text = article.getAttribute('data-words');
      const isFound = words.every((word) => text.includes(word));
      found += Number(isFound);
      article.hidden = !isFound;
      const link = document.querySelector(`[data-for="${article.id}"]`);
      if (link) link.hidden = !isFound;
    }
    for (const part of document.querySelectorAll('section, nav > div'))
      part.hidden = !part.querySelector('article:not([hidden]), li:not([hidden])');
    byId('found').textContent = found === 1 ? 'One operation' : `${found} operations`;
  }

  function showTheme(isDark) {
    document.documentElement.setAttribute('data-theme', isDark ? 'dark' : 'light');
    byId('theme').setAttribute('aria-pressed', String(isDark));
  }

  byId('search').addEventListener('input', search);
  byId('theme').addEventListener('click', ({ target }) =>
    showTheme(target.getAttribute('aria-pressed') !== 'true'),
  );
  showTheme(matchMedia('(prefers-color-scheme: dark)').matches);
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.target === byId('search')) return;
    event.preventDefault();
    byId('search').focus();
  });

  try {
    const response = await fetch('/openapi.json');
    if (!response.ok) throw new Error(`it was answered with ${response.status}`);
    description = await response.json();
    show();
    // The browser looked for the place in the address before there was one.
    if (location.hash) byId(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    byId('found').textContent = `The description could not be shown: ${error.message}`;
  }
})();
