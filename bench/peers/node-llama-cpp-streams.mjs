// Times llama.cpp on several sequences at once, as ballast bench --serve times our server: prompts
// without a common beginning, all asked at the same moment, batched by llama.cpp in one context.
//   bench/peers/node-llama-cpp --streams 1,4,16 --model FILE --prompt 512 --generate 64 --threads 2
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const seconds = () => performance.now() / 1000;

export async function measureStreams({model: modelPath, prompts, streams, generate, threads}) {
  const llama = await getLlama({
    gpu: false, build: "never", maxThreads: threads, logLevel: LlamaLogLevel.error
  });
  const model = await llama.loadModel({modelPath});
  const results = [];
  for (const prompt of prompts) {
    for (const count of streams) {
      const context = await model.createContext({
        contextSize: prompt + generate + 8, sequences: count, batchSize: 512, threads,
        flashAttention: true
      });
      const first = [], between = [];
      const begin = seconds();
      await Promise.all(Array.from({length: count}, async (_, stream) => {
        const tokens = Array.from({length: prompt}, (_, i) =>
          3 + (i === 0 ? stream : i * 7919) % 251);
        const answer = context.getSequence().evaluate(tokens,
          {temperature: 0, yieldEogToken: true});
        let last = begin;
        for (let i = 0; i < generate; ++i) {
          if ((await answer.next()).done) throw new Error(`the text ended after ${i} tokens`);
          const now = seconds();
          (i === 0 ? first : between).push(now - last);
          last = now;
        }
      }));
      const all = seconds() - begin;
      await context.dispose();
      const at = (list, share) =>
        list.sort((a, b) => a - b)[Math.max(Math.ceil(share * list.length), 1) - 1];
      results.push({
        prompt, streams: count, first_token_median: at(first, 0.5), first_token_p95: at(first, 0.95),
        token_median: at(between, 0.5), seconds: all, tokens_per_second: count * generate / all,
        peak_memory: process.memoryUsage.rss()
      });
    }
  }
  return results;
}
