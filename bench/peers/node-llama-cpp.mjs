// Times llama.cpp on a GGUF file: made-up prompts, then tokens one by one, always the likeliest.
// Flash attention, a float16 cache, no graphics card. Prints JSON for ballast bench --against.
import {readFileSync} from "fs";
import {parseArgs} from "util";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const {values} = parseArgs({options: {
  model: {type: "string"}, prompt: {type: "string"}, generate: {type: "string"},
  threads: {type: "string"}, streams: {type: "string"}
}});
const threads = Number(values.threads), generate = Number(values.generate);
const {version} = JSON.parse(
  readFileSync(new URL("node_modules/node-llama-cpp/package.json", import.meta.url)));

if (values.streams) {
  const {measureStreams} = await import("./node-llama-cpp-streams.mjs");
  const numbers = (list) => list.split(",").map(Number);
  const results = await measureStreams({
    model: values.model, prompts: numbers(values.prompt), streams: numbers(values.streams),
    generate, threads
  });
  console.log(JSON.stringify({name: `llama.cpp (node-llama-cpp ${version})`, results}, null, 2));
  process.exit(0);
}

const llama = await getLlama({
  gpu: false, build: "never", maxThreads: threads, logLevel: LlamaLogLevel.error
});
const model = await llama.loadModel({modelPath: values.model});
const seconds = () => performance.now() / 1000;

async function measure(prompt) {
  const context = await model.createContext({
    contextSize: prompt + generate + 8, batchSize: 512, threads, flashAttention: true
  });
  // Small ids: every vocabulary has them.
  const tokens = Array.from({length: prompt}, (_, i) => 3 + (i * 7919) % 251);
  const answer = context.getSequence().evaluate(tokens, {temperature: 0, yieldEogToken: true});
  const begin = seconds();
  await answer.next();
  const first = seconds();
  for (let i = 0; i < generate; ++i) {
    if ((await answer.next()).done) throw new Error(`the text ended after ${i} tokens`);
  }
  const end = seconds();
  await context.dispose();
  return {prompt, generated: generate, prompt_seconds: first - begin, decode_seconds: end - first};
}

const results = [];
for (const prompt of values.prompt.split(",").map(Number)) results.push(await measure(prompt));
console.log(JSON.stringify({name: `llama.cpp (node-llama-cpp ${version})`, results}, null, 2));
process.exit(0);
