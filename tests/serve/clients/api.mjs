// OpenAI's client and the AI SDK against a running server.
//   node api.mjs PROGRAM MODEL
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

import {createAnthropic} from '@ai-sdk/anthropic';
import {createOpenAI} from '@ai-sdk/openai';
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {generateText, jsonSchema, streamText, tool} from 'ai';
import OpenAI from 'openai';

import {check, records, result, serve} from './server.mjs';

const [program, model] = process.argv.slice(2);
const server = await serve(program, model, '--api-key', 'secret', '--name', 'tested');
try {
  const client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'secret', maxRetries: 0});
  const models = await client.models.list();
  check('models', models.data[0].id === 'tested', models.data);

  const ask = {model: 'tested', temperature: 0, max_tokens: 12,
               messages: [{role: 'system', content: 'Be brief.'},
                          {role: 'user', content: [{type: 'text', text: records(10) + 'record 3?'}]}]};
  const whole = await client.chat.completions.create(ask);
  const text = whole.choices[0].message.content;
  check('chat', text.length > 0 && whole.usage.completion_tokens > 0, whole);

  let streamed = '', usage = null;
  const stream = await client.chat.completions.create(
      {...ask, stream: true, stream_options: {include_usage: true}});
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta?.content ?? '';
    usage = chunk.usage ?? usage;
  }
  check('stream is the whole answer', streamed === text, [streamed, text]);
  check('usage of the stream', usage?.total_tokens === whole.usage.total_tokens, usage);

  const helper = client.chat.completions.stream(ask);
  check('stream helper', await helper.finalContent() === text, text);

  const raw = await client.completions.create(
      {model: 'tested', prompt: 'The sky is', max_tokens: 4, temperature: 0, logprobs: 2});
  check('completion', raw.choices[0].logprobs.tokens.length === raw.usage.completion_tokens, raw);

  const small = await client.chat.completions.create({...ask, cache: {bytes: 0.25}});
  check('budget', small.usage.prompt_cache_bytes < whole.usage.prompt_cache_bytes / 3, small.usage);

  const context = await client.post(
      '/contexts', {body: {text: records(40), cache: {bytes: 0.25}}});
  const about = await client.chat.completions.create(
      {...ask, messages: [{role: 'user', content: 'record 3?'}], context: context.id});
  check('context', about.usage.cached_tokens === context.tokens, about.usage);

  const error = await client.chat.completions.create({...ask, tools: [{type: 'function', function: {name: 'f'}}]})
      .catch(e => e);
  check('refusal', error instanceof OpenAI.BadRequestError && error.param === 'tools', error);
  const far = await client.chat.completions.create(
      {...ask, messages: [{role: 'user', content: records(2000)}]}).catch(e => e);
  check('context length', far.code === 'context_length_exceeded', far);
  const stranger = new OpenAI({baseURL: server.url + '/v1', apiKey: 'wrong', maxRetries: 0});
  const kept_out = await stranger.models.list().catch(e => e);
  check('key', kept_out instanceof OpenAI.AuthenticationError && kept_out.code === 'invalid_api_key', kept_out);
  const other = await client.chat.completions.create({...ask, model: 'gpt'});
  check('any model', other.choices[0].message.content === text, other);

  const second = await client.chat.completions.create({...ask, seed: -1, presence_penalty: 0.5, top_p: 0,
      logit_bias: {5: -100}, messages: [{role: 'user', content: '2+2?', name: 'ann'},
      {role: 'assistant', content: '4', reasoning_content: 'two and two'}, {role: 'user', content: '3+3?'}]});
  check('a second turn with thoughts', second.choices[0].finish_reason !== null, second);
  const batch = await client.completions.create(
      {model: 'tested', prompt: ['The sky', 'The sea'], max_tokens: 0, echo: true, logprobs: 1});
  check('echo of several', batch.choices[1].text === 'The sea' &&
        batch.choices[0].logprobs.token_logprobs[0] === null, batch.choices);
  const vectors = await client.embeddings.create({model: 'tested', input: ['The sky', 'The sea']});
  const length = Math.hypot(...vectors.data[1].embedding);
  check('embeddings', Math.abs(length - 1) < 1e-3, length);
  const zod = {type: 'object', properties: {n: {type: 'integer', minimum: 3, maximum: 12},
               t: {type: 'string', minLength: 1, maxLength: 8}}, required: ['n', 't'], additionalProperties: false};
  const held = JSON.parse((await client.chat.completions.create({...ask, max_tokens: 100,
      response_format: {type: 'json_schema', json_schema: {name: 'x', strict: true, schema: zod}}}))
      .choices[0].message.content);
  check('bounds of a schema', held.n >= 3 && held.n <= 12 && held.t.length <= 8, held);

  const provider = createOpenAICompatible({
    name: 'ballast', baseURL: server.url + '/v1', apiKey: 'secret', includeUsage: true});
  const prompt = records(10) + 'record 3?';
  const made = await generateText({model: provider('tested'), prompt, temperature: 0, maxOutputTokens: 12});
  check('ai: generateText', made.text.length > 0 && made.usage.outputTokens > 0, made.usage);
  const pieces = streamText({model: provider('tested'), prompt, temperature: 0, maxOutputTokens: 12});
  let joined = '';
  for await (const piece of pieces.textStream) joined += piece;
  check('ai: streamText', joined === made.text, [joined, made.text]);
  check('ai: usage', (await pieces.usage).outputTokens === made.usage.outputTokens, await pieces.usage);

  for (const [name, model] of [
      ['responses', createOpenAI({baseURL: server.url + '/v1', apiKey: 'secret'}).responses('tested')],
      ['anthropic', createAnthropic({baseURL: server.url + '/v1', apiKey: 'secret'})('tested')]]) {
    const asked = {model, prompt, temperature: 0, maxOutputTokens: 12, providerOptions: {openai: {store: false}}};
    const whole = await generateText(asked);
    check(`ai, ${name}: generateText`, whole.text === made.text && whole.usage.outputTokens === made.usage.outputTokens,
          [whole.text, whole.usage]);
    const stream = streamText(asked);
    let text = '';
    for await (const piece of stream.textStream) text += piece;
    check(`ai, ${name}: streamText`, text === whole.text && (await stream.usage).outputTokens > 0, text);
    const messages = [{role: 'user', content: prompt}, ...whole.response.messages, {role: 'user', content: 'And?'}];
    const second = await generateText({...asked, prompt: undefined, messages});
    check(`ai, ${name}: a second turn`, second.usage.inputTokens > whole.usage.inputTokens, second.usage);
  }
} finally {
  server.stop();
}

// The shipped model has not learned tools: another template shows them to it, and a schema makes it
// call one.
const folder = mkdtempSync(join(tmpdir(), 'ballast-'));
const taught = join(folder, 'taught.gguf');
const bytes = readFileSync(model);
const begin = bytes.indexOf('{{ bos_token }}{% for m in messages %}');
const last = "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
const length = bytes.indexOf(last, begin) + last.length - begin;
const template = `{{ bos_token }}{{ tools }}{% for m in messages %}{{ '<|' + m.role + '|>' }}` +
    `{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ '<|assistant|>' }}`;
bytes.write(template + '{#' + ' '.repeat(length - template.length - 4) + '#}', begin);
writeFileSync(taught, bytes);
const other = await serve(program, taught, '--name', 'taught');
try {
  const client = new OpenAI({baseURL: other.url + '/v1', apiKey: 'none', maxRetries: 0});
  const parameters = {type: 'object', properties: {city: {enum: ['Oslo', 'Rome']}}, required: ['city']};
  const schema = {type: 'object', required: ['name', 'parameters'],
                  properties: {name: {const: 'weather'}, parameters}};
  const response_format = {type: 'json_schema', json_schema: {name: 'call', schema}};
  const messages = [{role: 'user', content: 'How is the weather?'}];
  const ask = {model: 'taught', temperature: 0, messages, response_format,
               tools: [{type: 'function', function: {name: 'weather', parameters}}]};
  const {message, finish_reason} = (await client.chat.completions.create(ask)).choices[0];
  const city = JSON.parse(message.tool_calls?.[0].function.arguments ?? '{}').city;
  check('tool call', finish_reason === 'tool_calls' && message.content === null && city, message);
  const runner = client.chat.completions.stream(ask);
  const streamed = (await runner.finalChatCompletion()).choices[0];
  check('tool call in a stream', streamed.finish_reason === 'tool_calls' &&
        JSON.parse(streamed.message.tool_calls[0].function.arguments).city === city, streamed);
  const must = (await client.chat.completions.create(
      {...ask, response_format: undefined, tool_choice: 'required', max_tokens: 100})).choices[0];
  check('a call that must be', must.message.tool_calls?.[0].function.name === 'weather', must);
  const after = await client.chat.completions.create(
      {...ask, response_format: undefined, tool_choice: 'none', max_tokens: 4,
       messages: [...messages, message, {role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'cold'}]});
  check('answer after a call', after.choices[0].message.content !== null, after);

  const provider = createOpenAICompatible({name: 'ballast', baseURL: other.url + '/v1'});
  const weather = tool({inputSchema: jsonSchema(parameters), execute: ({city}) => city + ' is cold'});
  const asked = {model: provider('taught'), prompt: 'How is the weather?', temperature: 0,
                 tools: {weather}, providerOptions: {ballast: {response_format}}};
  const called = await generateText(asked);
  check('ai: tool call', called.toolResults[0]?.output === city + ' is cold', called.content);
  const calls = streamText(asked);
  await calls.consumeStream();
  check('ai: tool call in a stream', (await calls.toolResults)[0]?.output === city + ' is cold',
        await calls.content);
  for (const [name, model] of [
      ['responses', createOpenAI({baseURL: other.url + '/v1', apiKey: 'x'}).responses('taught')],
      ['anthropic', createAnthropic({baseURL: other.url + '/v1', apiKey: 'x'})('taught')]]) {
    const asked = {model, prompt: 'How is the weather?', temperature: 0, tools: {weather}, toolChoice: 'required',
                   maxOutputTokens: 400, providerOptions: {openai: {store: false}}};
    const whole = await generateText(asked);
    check(`ai, ${name}: tool call`, /^(Oslo|Rome) is cold$/.test(whole.toolResults[0]?.output), whole.content);
    const stream = streamText(asked);
    await stream.consumeStream();
    check(`ai, ${name}: tool call in a stream`, /is cold$/.test((await stream.toolResults)[0]?.output),
          await stream.content);
    const after = await generateText({...asked, toolChoice: 'none', prompt: undefined, maxOutputTokens: 4, messages: [
        {role: 'user', content: 'How is the weather?'}, ...whole.response.messages]});
    check(`ai, ${name}: answer after a call`, after.finishReason === 'length' || after.text !== '', after.content);
  }
} finally {
  other.stop();
  rmSync(folder, {recursive: true});
}
process.exit(result());
