// Compares GGUF models and the logits that reference.py made for them with llama.cpp, through the
// npm package node-llama-cpp (checked with 3.22.1):
//
//   python3 reference.py FOLDER llama qwen2 …
//   node peer.mjs FOLDER llama qwen2 …
//
// The package gives probabilities of the likeliest tokens only, normalised over these: so their
// logarithms must equal the logits but for a constant, which is taken out. The cache is float32.
import {existsSync, readFileSync} from "fs";
import {getLlama} from "node-llama-cpp";

const [folder, ...names] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never"});

function numbers(path, read) {
  const bytes = readFileSync(path);
  return Array.from({length: bytes.length / 4}, (_, i) => bytes[read](4 * i));
}

for (const name of names) {
  const path = `${folder}/${name}/model.gguf`;
  if (!existsSync(path)) continue;
  const tokens = numbers(`${folder}/${name}/tokens.i32`, "readInt32LE");
  const logits = numbers(`${folder}/${name}/logits.f32`, "readFloatLE");
  const width = logits.length / tokens.length;
  const model = await llama.loadModel({modelPath: path});
  const context = await model.createContext({
    contextSize: 64, batchSize: 64, flashAttention: false,
    experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"
  });
  const ask = {generateNext: {probabilities: true, options: {temperature: 1}}};
  const answers = await context.getSequence().controlledEvaluate(tokens.map((t) => [t, ask]));
  let worst = 0, same = 0;
  answers.forEach((answer, at) => {
    const row = logits.slice(at * width, (at + 1) * width);
    const chances = [...answer.next.probabilities].filter(([, p]) => p > 1e-30);
    const differences = chances.map(([token, p]) => Math.log(p) - row[token]);
    const high = Math.max(...differences), low = Math.min(...differences);
    worst = Math.max(worst, (high - low) / 2);
    if (row.indexOf(Math.max(...row)) === chances[0][0]) ++same;
  });
  console.log(`${name}: largest difference ${worst.toExponential(1)}, ` +
              `likeliest token the same at ${same} of ${tokens.length}`);
  await context.dispose();
  await model.dispose();
}
process.exit(0);
