// Starts `ballast serve` for a test, and counts what fails.
import {spawn} from 'node:child_process';
import {createInterface} from 'node:readline';

/// Returns {url, stop}. Arguments: the program, the model, further options.
export async function serve(program, model, ...options) {
  const child = spawn(program, ['serve', '-m', model, '--port', '0', '-q', ...options],
                      {stdio: ['ignore', 'pipe', 'inherit']});
  const {value} = await createInterface({input: child.stdout})[Symbol.asyncIterator]().next();
  const url = /http:\S+/.exec(value ?? '')?.[0];
  if (!url) throw new Error('the server did not start');
  return {url, stop: () => child.kill('SIGKILL')};
}

let failed = 0;
export function check(what, condition, seen) {
  console.log(`${condition ? 'ok  ' : 'FAIL'} ${what}${condition ? '' : ': ' + JSON.stringify(seen)}`);
  if (!condition) ++failed;
}
export const result = () => (failed ? 1 : 0);

/// Lines whose numbers can be asked for.
export function records(count) {
  let text = '';
  for (let i = 0; i < count; ++i) text += `line ${i}: the number of record ${i} is ${i * 7919 % 9973}.\n`;
  return text;
}
