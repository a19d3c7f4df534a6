// OpenAI's client and the AI SDK against a running server.
//   node api.mjs PROGRAM MODEL
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {generateText, streamText} from 'ai';
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
  const missing = await client.chat.completions.create({...ask, model: 'gpt'}).catch(e => e);
  check('model', missing instanceof OpenAI.NotFoundError, missing);

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
} finally {
  server.stop();
}
process.exit(result());
