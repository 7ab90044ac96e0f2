import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { readConfig } from '../../../src/config.ts';
import { KeyService } from '../../../src/engine/access/key-service.ts';
import { openAccess } from '../../../src/engine/access/open-access.ts';
import { temporaryFolder } from '../../support/cleanup.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, silentLog } from '../../support/jobs.ts';
import { createKey } from '../../support/keys.ts';

describe('the first key', () => {
  onEveryEngine((engine) => {
    let store: TestDatabase;
    let path: string;
    beforeEach(async () => {
      store = await engine.open();
      path = join(await temporaryFolder('leasehold-key-'), 'admin.key');
    });
    afterEach(() => store.close());

    const start = () =>
      openAccess(
        { ...readConfig({}, {}), auth: ['keys'], adminKeyFile: path, rateAnonymous: 0, rateBurstS: 1 },
        store.database,
        silentLog,
      );
    const refusal = async (): Promise<string> => {
      try {
        await start();
        return 'started';
      } catch (error) {
        return (error as Error).message;
      }
    };
    const fileText = () => readFile(path, 'utf8').catch(({ code }: { code: string }) => code);

    it('is written to the file once there is no key at all, and expires like others', async () => {
      await start();
      expect(await fileText()).to.match(/^lhk_\w+\n$/);
      const [key] = await new KeyService(store.database).list(caller);
      const days = ((key?.expiresAtMs ?? 0) - Date.now()) / 86_400_000;
      expect(days).to.be.within(89.9, 90.1);
    });

    it('is not written after all keys were revoked', async () => {
      const { keyId } = await createKey(store.database, { name: 'a', roles: ['admin'] });
      await new KeyService(store.database).revoke(keyId, caller);
      expect(await refusal()).to.contain('no key is in force');
      expect(await fileText()).to.equal('ENOENT');
    });

    it('leaves no file behind where it cannot be created', async () => {
      await store.database.query('alter table api_keys add check (false) not valid', []);
      expect(await refusal()).to.contain('check');
      expect(await fileText()).to.equal('ENOENT');
    });
  });
});
