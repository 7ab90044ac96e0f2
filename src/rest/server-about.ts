import Type from 'typebox';
import { answer, operations, text } from './about.ts';
import { jsonObject, oneOf } from './word-types.ts';

const parts = {
  database: oneOf(['up', 'down'], 'Whether the database answers.'),
  redis: Type.Optional(oneOf(['up', 'down'], 'Whether Redis answers; there where Redis is used.')),
};
const Alive = Type.Object({ status: oneOf(['ok'], 'The process lives.'), ...parts });
const Readiness = Type.Object({
  status: oneOf(['ready', 'unavailable', 'stopping'], 'Whether it can serve.'),
  ...parts,
});

/** What the server's own routes say of themselves. */
export const serverAbout = operations('Server', {
  getHealth: {
    summary: 'Whether the process lives',
    answers: { 200: answer('It does.', Alive, { status: 'ok', database: 'up' }) },
    errors: 'nothing',
  },
  getReadiness: {
    summary: 'Whether the server can serve',
    answers: {
      200: answer('It can.', Readiness, { status: 'ready', database: 'up' }),
      503: answer('It cannot now.', Readiness, { status: 'unavailable', database: 'down' }),
    },
    errors: 'nothing',
  },
  getMetrics: {
    summary: 'Figures for Prometheus',
    answers: { 200: text('The figures, in the text format of Prometheus.', 'text/plain') },
    errors: 'nothing',
  },
  getOpenApi: {
    summary: 'This description',
    answers: { 200: answer('An OpenAPI 3.1 document.', jsonObject('The document.')) },
    errors: 'nothing',
  },
  getDocs: {
    summary: 'This description, to be read',
    answers: { 200: text('A page that needs nothing but this server.', 'text/html') },
    errors: 'nothing',
  },
  getDocsIndex: {
    summary: 'The same as `/docs`',
    answers: { 200: text('The page.', 'text/html') },
    errors: 'nothing',
  },
  getDocsScript: {
    summary: 'The script of the page',
    answers: { 200: text('The script.', 'text/javascript') },
    errors: 'nothing',
  },
  getDocsStyle: {
    summary: 'The style of the page',
    answers: { 200: text('The style.', 'text/css') },
    errors: 'nothing',
  },
});
