import Type from 'typebox';
import { findingAreas, findingLevels } from '../../domain/doctor/finding.ts';
import { answer, operations, text } from '../openapi/operation.ts';
import { entity, jsonObject, list, oneOf, orNull, time, word } from '../openapi/schema-types.ts';

const parts = {
  database: Type.Optional(oneOf(['up', 'down'], 'Whether the database answers.')),
  redis: Type.Optional(oneOf(['up', 'down'], 'Whether Redis answers; there where Redis is used.')),
};
const Alive = Type.Object({ status: oneOf(['ok'], 'The process lives.'), ...parts });
const Readiness = Type.Object({
  status: oneOf(['ready', 'unavailable', 'stopping'], 'Whether it can serve.'),
  ...parts,
  reason: Type.Optional(word('Why it refuses writes, while it does; reads go on.')),
});

const Diagnosis = Type.Object({
  ts: time('When it was looked.'),
  version: word("The server's."),
  level: oneOf(findingLevels, 'The worst of all.'),
  findings: list(
    entity('Finding', 'One thing that was looked at.', {
      area: oneOf(findingAreas, 'Where.'),
      code: word('What was looked at, for programs.'),
      level: oneOf(findingLevels, 'How it is.'),
      text: word('What was found, in a sentence.'),
      advice: orNull(word('What to do about it.')),
      facts: jsonObject('The figures behind the sentence.'),
    }),
    'All that was looked at.',
  ),
});

/** Documentation of the server's own routes. */
export const serverAbout = operations('Server', {
  getHealth: {
    summary: 'Check that the process lives',
    answers: { 200: answer('It does.', Alive, { status: 'ok', database: 'up' }) },
    errors: 'nothing',
  },
  getReadiness: {
    summary: 'Check that the server can serve',
    answers: {
      200: answer('It can.', Readiness, { status: 'ready', database: 'up' }),
      503: answer('It cannot now.', Readiness, { status: 'unavailable', database: 'down' }),
    },
    errors: 'nothing',
  },
  getMetrics: {
    summary: 'Read the metrics of Prometheus',
    answers: { 200: text('The figures, in the text format of Prometheus.', 'text/plain') },
    errors: 'nothing',
  },
  getDiagnosis: {
    summary: 'List findings about the server and their remedies',
    details:
      'Looks at the server, its database, its queue and its Redis, and answers within some seconds whatever hangs.',
    answers: { 200: answer('What was found.', Diagnosis) },
    errors: [],
  },
  getOpenApi: {
    summary: 'Read this description as OpenAPI',
    answers: { 200: answer('An OpenAPI 3.1 document.', jsonObject('The document.')) },
    errors: 'nothing',
  },
  getDocs: {
    summary: 'Read this description as a page',
    answers: { 200: text('A page that needs nothing but this server.', 'text/html') },
    errors: 'nothing',
  },
  getDocsIndex: {
    summary: 'Read the same page as `/docs`',
    answers: { 200: text('The page.', 'text/html') },
    errors: 'nothing',
  },
  getDocsScript: {
    summary: 'Read the script of the page',
    answers: { 200: text('The script.', 'text/javascript') },
    errors: 'nothing',
  },
  getDocsStyle: {
    summary: 'Read the style of the page',
    answers: { 200: text('The style.', 'text/css') },
    errors: 'nothing',
  },
});
