import { flagOf, settings } from '../../src/config.ts';
import { code, table } from './markdown.ts';

/** Every setting of the server, from where it is declared. */
export const settingsSection = (): string =>
  table(
    ['Variable', 'Flag', 'Default', 'Allowed', 'Description'],
    Object.values(settings).map((setting) => {
      const { variable, about, allowed, default: value } = setting;
      const shown = ('defaultText' in setting ? setting.defaultText : undefined) ?? String(value);
      return [code(variable), code(`--${flagOf(variable)}`), shown, allowed, about];
    }),
  );
