// Mocha adds the files of the command line to those named here, so that `npm test -- one.test.ts` would run them all;
// a configuration that is code can leave its own out.
const filesAreNamed = process.argv.slice(2).some((argument) => /\.test\.ts$/.test(argument));

module.exports = {
  spec: filesAreNamed ? [] : ['test/**/*.test.ts'],
  require: ['test/support/hooks.ts'],
  reporter: 'test/support/reporter.ts',
  timeout: 30_000,
  failZero: true,
  forbidOnly: true,
  forbidPending: true,
};
