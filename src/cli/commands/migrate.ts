import { settingsHelp } from '../../config.ts';
import { inOneLine } from '../../lib/log.ts';
import type { Command } from '../main.ts';
import { settingFlags } from '../support/args.ts';
import { prepare } from '../support/load-config.ts';
import { printToStderr } from '../support/stderr.ts';

export const migrateCommand: Command = {
  name: 'migrate',
  flags: settingFlags,
  help: () => `Usage: leasehold migrate [settings]

Migrates the schema of the database, and exits. 'leasehold serve' does the same
when it starts; this command does it before. Running it twice, or while servers
start, is harmless.

It takes the settings of 'leasehold serve'. Only those of the database matter:

${settingsHelp()}
`,
  async run(args) {
    const prepared = prepare(args, this.help);
    if (!prepared) return 0;
    const { config, log } = prepared;
    try {
      const [{ migrate }, { openConfigured }] = await Promise.all([
        import('../../store/migrate.ts'),
        import('../../store/open.ts'),
      ]);
      const database = await openConfigured(config, log);
      try {
        const applied = await migrate(database);
        const words = applied.length === 0 ? 'the schema is up to date' : `applied ${applied.join(', ')}`;
        process.stdout.write(`${words}\n`);
      } finally {
        await database.close();
      }
      return 0;
    } catch (error) {
      printToStderr(inOneLine(error));
      return 1;
    }
  },
};
