// The page in Chromium: chat, documents, what an answer rests on, two sides, what is kept, errors; wide and
// narrow, light and dark.
//   node page.mjs PROGRAM MODEL [FOLDER for screenshots]
import {execFileSync} from 'node:child_process';
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
const library = join(folder, 'library');
// A PDF of one page.
const scan = join(folder, 'scan.pdf');
const words = 'BT /F 12 Tf 60 700 Td (line 99: the number of record 99 is 5150.) Tj ET';
writeFileSync(scan, `%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1` +
`/BaseFont/Helvetica>>>>>>>>endobj
4 0 obj<</Length ${words.length}>>stream
${words}
endstream endobj
trailer<</Root 1 0 R>>
%%EOF
`);
const draws = existsSync('/usr/bin/pdftoppm');
execFileSync(program, ['library', 'add', '-m', model, '--library', library, '-q', file, ...draws ? [scan] : []]);
const with_library = await serve(program, model, '--library', library);
const browser = await chromium.launch({executablePath: browser_path, args: ['--no-sandbox']});
try {
  const page = await browser.newPage({bypassCSP: true, viewport: {width: 1280, height: 1000}});  // Playwright waits by eval
  const foreign = [], errors = [];
  page.on('request', request => { if (!request.url().startsWith(server.url) && !request.url().startsWith('data:')) foreign.push(request.url()); });
  page.on('pageerror', error => errors.push(error.message));
  page.on('console', message => { if (message.type() === 'error') errors.push(message.text()); });
  await page.goto(server.url);
  await page.waitForFunction(() => document.querySelectorAll('#method option').length > 3);
  const choice = await page.evaluate(async () => {
    const props = await (await fetch('/props')).json();
    return [document.getElementById('method').value, document.querySelector('#method option').textContent, props.sized_method];
  });
  check('the server chooses the method', choice[0] === '' && choice[1].startsWith(choice[2]), choice);

  await page.fill('#tokens', '12');
  await page.fill('#question', 'The pass key is 48213. What is the pass key?');
  await page.keyboard.press('Enter');  // no mouse
  await page.waitForFunction(() => document.querySelector('.said .assistant') && !document.getElementById('send').disabled);
  const said = await page.textContent('.said .assistant');
  check('chat', said.length > 0 && said !== '…', said);

  // Nothing that a model writes becomes HTML.
  const made = await page.evaluate(() => {
    const box = document.createElement('div');
    box.append(...markdown('# A\n\n<b>x</b> **bold** `a<b`\n- one\n- two\n\n```\n<i>\n```\n[y](javascript:alert(1)) [z](https://a.b)'));
    return box.innerHTML;
  });
  check('Markdown', made === '<h3>A</h3><p>&lt;b&gt;x&lt;/b&gt; <strong>bold</strong> <code>a&lt;b</code></p><ul><li>one</li>' +
        '<li>two</li></ul><pre><code>&lt;i&gt;</code></pre><p>[y](javascript:alert(1)) ' +
        '<a href="https://a.b" target="_blank" rel="noreferrer">z</a></p>', made);

  // A binary file is refused, and the error goes away.
  const binary = join(folder, 'a.bin');
  writeFileSync(binary, Buffer.from([0x47, 0x47, 0x55, 0x46, 3, 0, 0, 0]));
  await page.setInputFiles('#file', binary);
  await page.waitForSelector('#wrong:not([hidden])');
  check('binary file', /a\.bin: a GGUF file/.test(await page.textContent('#wrong')), await page.textContent('#wrong'));
  errors.length = 0;  // the browser logs the status
  await page.click('#wrong button');
  check('errors go away', await page.isHidden('#wrong'), null);

  await page.check('#compare');
  await page.getByText('How it is kept').click();
  for (const [method, number] of [['replay', 1], ['streaming-llm', 2]]) {
    await page.selectOption('#method', method);
    await page.selectOption('#size', '0.25');
    await page.setInputFiles('#file', file);
    await page.waitForFunction(n => document.querySelectorAll('#contexts li').length === n, number, {timeout: 120000});
  }
  const sizes = await page.evaluate(async () => (await (await fetch('/v1/contexts')).json()).data.map(c => c.cache_bytes));
  check('equal bytes', Math.abs(sizes[0] / sizes[1] - 1) < 0.1, sizes);
  await page.waitForTimeout(400);  // a timer that still ran would write over it
  check('time and bytes', /read in .* s; [\d.]+ of [\d.]+ [KM]B/.test(await page.textContent('#reading')),
        await page.textContent('#reading'));
  const selects = page.locator('#sides select');
  await selects.nth(0).selectOption({index: 1});
  await selects.nth(1).selectOption({index: 2});
  await page.fill('#question', 'What is the number of record 42?');
  await page.click('#send');
  await page.waitForFunction(() => document.querySelectorAll('.said .assistant').length === 2 && !document.getElementById('send').disabled);
  const about = await page.locator('#sides > div > .soft').allTextContents();
  check('two sides', about.length === 2 && about.every(text => /tokens before, [1-9]\d* of them cached/.test(text)), about);

  const cite = page.locator('#sides > div').first().locator('.cites button').first();
  check('citation', /^line \d+: line \d+: the number of record/.test(await cite.textContent()), await cite.textContent());
  await cite.click();
  await page.waitForSelector('#text mark');
  check('highlighted', (await cite.textContent()).endsWith((await page.textContent('#text mark')).trim()),
        await page.textContent('#text mark'));
  await page.locator('#contexts li').first().getByText('what is kept').click();
  const shown = await page.locator('#contexts li').first().locator('summary').textContent();
  check('no internals', /^read once; [\d.]+ of [\d.]+ [KM]B$/.test(shown), shown);
  await page.click('#heads summary');
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

  // A reload loses no chat; Delete asks.
  const before = await page.locator('.said').allTextContents();
  await page.reload();
  await page.waitForSelector('.said .assistant');
  const after = await page.locator('.said').allTextContents();
  check('a reload loses no chat', JSON.stringify(after) === JSON.stringify(before), [before, after]);
  const asked = [];
  page.on('dialog', dialog => { asked.push(dialog.message()); return asked.length < 2 ? dialog.dismiss() : dialog.accept(); });
  const rows = await page.locator('#contexts li').count();
  await page.locator('#contexts').getByText('Delete').first().click();
  check('Delete asks', asked.length === 1 && await page.locator('#contexts li').count() === rows, asked);

  // Colours at an eighth leave most of a text alone, and characters are whole.
  await page.uncheck('#compare');
  await page.selectOption('#size', '0.125');
  writeFileSync(join(folder, 'letter.txt'), records(40) + 'Grüße aus 東京 🏔.\n');
  await page.setInputFiles('#file', join(folder, 'letter.txt'));
  await page.waitForFunction(n => document.querySelectorAll('#contexts li').length === n, rows + 1, {timeout: 120000});
  await page.locator('#contexts li').filter({hasText: 'letter.txt'}).getByText('what is kept').click();
  await page.waitForFunction(() => document.getElementById('kept-title').textContent === 'letter.txt');
  const letters = await page.textContent('#text');
  check('whole characters', letters.includes('Grüße aus 東京 🏔.'), letters.slice(-60));
  const [marked, all] = await page.evaluate(() => [
    [...document.querySelectorAll('#text span[style]')].reduce((n, span) => n + span.textContent.length, 0),
    document.getElementById('text').textContent.length]);
  check('half of the text at most is coloured', marked > 0 && marked < 0.6 * all, [marked, all]);

  await page.setViewportSize({width: 390, height: 844});
  await page.emulateMedia({colorScheme: 'dark'});
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check('fits a phone', wider <= 0, wider);
  await page.screenshot({path: join(folder, 'phone.png'), fullPage: true});
  check('no request elsewhere', foreign.length === 0, foreign);
  check('no error', errors.length === 0, errors);

  await page.goto(with_library.url);
  await page.waitForSelector('#documents li');
  const entry = await page.textContent('#documents li');
  check('size and date', /^records\.txt[\d.]+ KB, .*\d/.test(entry), entry);
  await page.fill('#find', 'nothing');
  check('searched', await page.locator('#documents li').count() === 0, null);
  await page.fill('#find', 'REC');
  check('found', await page.locator('#documents li').count() === 1, null);
  check('the library is asked where there is one', await page.inputValue('#sides select') === 'library', null);
  await page.fill('#question', 'What is the number of record 42?');
  await page.click('#send');
  await page.waitForSelector('.cites button');
  const found = await page.textContent('.cites button');
  check('library', found.startsWith('records.txt, line 43: line 42: the number of record 42'), found);
  await page.click('.cites button');
  await page.waitForSelector('#page mark');
  check('opened at the sentence', (await page.textContent('#page mark')).startsWith('line 42: '),
        await page.textContent('#page mark'));
  if (draws) {
    await page.click('#clear');
    await page.fill('#question', 'What is the number of record 99?');
    await page.click('#send');
    await page.waitForSelector('.cites button');
    await page.click('.cites button');
    await page.waitForFunction(() => document.getElementById('picture').naturalHeight > 1000);
    check('a PDF is shown at its page', /^Page 1 of scan.pdf$/.test(await page.getAttribute('#picture', 'alt')), null);
    await page.screenshot({path: join(folder, 'library.png'), fullPage: true});
  }
  await page.fill('#find', '');
  const note = join(folder, 'note.txt');
  writeFileSync(note, 'The mill was sold.');
  const count = await page.locator('#documents li').count();
  await page.setInputFiles('#file', note);
  await page.waitForFunction(n => document.querySelectorAll('#documents li').length === n, count + 1, {timeout: 120000});
} finally {
  await browser.close();
  server.stop();
  with_library.stop();
}
console.log(`screenshots: ${folder}`);
process.exit(result());
