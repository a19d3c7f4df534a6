// Checks that llama.cpp (through node-llama-cpp) loads the exported model, cuts text into the same tokens and gives
// the same greedy answers as PyTorch.
//
//   python3 evaluate.py ../models/ballast-mini.gguf --cases cases.json
//   cd FOLDER_WITH_node-llama-cpp && node .../training/check_peer.mjs .../ballast-mini.gguf .../cases.json

import {createRequire} from "module";
import {pathToFileURL} from "url";
import fs from "fs";

const require = createRequire(pathToFileURL(process.cwd() + "/"));
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(require.resolve("node-llama-cpp")));

const [modelPath, casesPath] = process.argv.slice(2);
const cases = JSON.parse(fs.readFileSync(casesPath, "utf-8"));
const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.warn});
const model = await llama.loadModel({modelPath});
const longest = Math.max(...cases.map((c) => c.ids.length + c.greedy.length)) + 8;
const context = await model.createContext({contextSize: longest, threads: 1, flashAttention: false, sequences: 1});
let sameTokens = 0;
let sameAnswers = 0;
for (const {prompt, ids, greedy} of cases) {
  const sequence = context.getSequence();
  const cut = model.tokenize(prompt, false);
  if (cut[0] !== model.tokens.bos) cut.unshift(model.tokens.bos);
  const equal = JSON.stringify(cut) === JSON.stringify(ids);
  sameTokens += equal;
  if (!equal) console.log("tokens differ:", JSON.stringify(prompt.slice(-80)));
  const answer = [];
  for await (const token of sequence.evaluate(ids, {temperature: 0})) {
    answer.push(token);
    if (answer.length === greedy.length) break;
  }
  const right = JSON.stringify(answer) === JSON.stringify(greedy);
  sameAnswers += right;
  if (!right) console.log("answers differ:", answer, greedy);
  await sequence.dispose();
}
console.log(`${cases.length} cases: tokens equal in ${sameTokens}, greedy answers equal in ${sameAnswers}`);
process.exit(sameTokens === cases.length && sameAnswers === cases.length ? 0 : 1);
