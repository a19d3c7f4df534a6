// The page in Chromium: chat, a document, two sides, what is kept; wide and narrow, light and dark.
//   node page.mjs PROGRAM MODEL [FOLDER for screenshots]
import {existsSync, mkdirSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {chromium} from 'playwright-core';

import {check, records, result, serve} from './server.mjs';

const [program, model, given] = process.argv.slice(2);
const browser_path = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
if (!browser_path) {
  console.log('skipped: no Chromium; apt-get install chromium');
  process.exit(77);
}
const folder = given ?? join(tmpdir(), `ballast-page-${process.pid}`);
mkdirSync(folder, {recursive: true});
const file = join(folder, 'records.txt');
writeFileSync(file, records(60));
const server = await serve(program, model);
const browser = await chromium.launch({executablePath: browser_path, args: ['--no-sandbox']});
try {
  const page = await browser.newPage({viewport: {width: 1280, height: 1000}});
  const foreign = [], errors = [];
  page.on('request', request => { if (!request.url().startsWith(server.url) && !request.url().startsWith('data:')) foreign.push(request.url()); });
  page.on('pageerror', error => errors.push(error.message));
  page.on('console', message => { if (message.type() === 'error') errors.push(message.text()); });
  await page.goto(server.url);
  await page.waitForFunction(() => document.querySelectorAll('#method option').length > 3);

  await page.fill('#tokens', '12');
  await page.fill('#question', 'The pass key is 48213. What is the pass key?');
  await page.keyboard.press('Enter');  // no mouse
  await page.waitForFunction(() => document.querySelector('.said .assistant') && !document.getElementById('send').disabled);
  const said = await page.textContent('.said .assistant');
  check('chat', said.length > 0 && said !== '…', said);

  await page.check('#compare');
  for (const [method, number] of [['replay', 1], ['streaming-llm', 2]]) {
    await page.setInputFiles('#file', file);
    await page.selectOption('#method', method);
    await page.selectOption('#size', '0.25');
    await page.click('#read');
    await page.waitForFunction(n => document.querySelectorAll('#contexts li').length === n, number, {timeout: 120000});
  }
  check('time and bytes', /tokens in .* s: .* in place of /.test(await page.textContent('#reading')),
        await page.textContent('#reading'));
  const selects = page.locator('#sides select');
  await selects.nth(0).selectOption({index: 1});
  await selects.nth(1).selectOption({index: 2});
  await page.fill('#question', 'What is the number of record 42?');
  await page.click('#send');
  await page.waitForFunction(() => document.querySelectorAll('.said .assistant').length === 2 && !document.getElementById('send').disabled);
  const about = await page.locator('#sides > div > .soft').allTextContents();
  check('two sides', about.length === 2 && about.every(text => /tokens before, [1-9]\d* of them cached/.test(text)), about);

  await page.locator('#contexts li').first().getByText('What is kept').click();
  await page.waitForSelector('#grid button');
  const kept = await page.textContent('#text');
  check('text', kept.includes('the number of record 42 is'), kept.slice(0, 80));
  check('colours', await page.locator('#text span[style]').count() > 0, 0);
  const heads = await page.locator('#grid button').count();
  check('grid', heads === await page.evaluate(async () => { const p = await (await fetch('/props')).json(); return p.layers * p.kv_heads; }), heads);
  await page.screenshot({path: join(folder, 'wide.png'), fullPage: true});
  await page.locator('#grid button').first().focus();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('kept-about').textContent.startsWith('Layer 0, KV head 0'));
  check('one head', await page.getAttribute('#grid button', 'aria-pressed') === 'true', null);

  await page.setViewportSize({width: 390, height: 844});
  await page.emulateMedia({colorScheme: 'dark'});
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check('fits a phone', wider <= 0, wider);
  await page.screenshot({path: join(folder, 'phone.png'), fullPage: true});
  check('no request elsewhere', foreign.length === 0, foreign);
  check('no error', errors.length === 0, errors);
} finally {
  await browser.close();
  server.stop();
}
console.log(`screenshots: ${folder}`);
process.exit(result());
