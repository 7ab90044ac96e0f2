import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { startChromium } from './chromium.ts';
import { describeWith } from './programs.ts';

describeWith('chromium', 'the browser of the tests', () => {
  it('opens a page of a local server, runs its script and closes without a trace', async () => {
    const server = createServer((_, response) => {
      response.setHeader('content-type', 'text/html').end('<p id=a></p><script>a.append("seen")</script>');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const browser = await startChromium(['--host-resolver-rules=MAP other.test 127.0.0.1']);
    try {
      const page = await browser.newPage();
      await page.goto(`http://other.test:${(server.address() as AddressInfo).port}/`);
      expect(await page.locator('#a').textContent()).to.equal('seen');
    } finally {
      await browser.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  });
});
