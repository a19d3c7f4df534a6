"""ballast.vllm on vLLM's CPU backend: texts are read once, kept, and loaded by the next process.

The model has random weights, the least of which a loaded cache changes: with exact rows the answers
would be the same, with rows of 4 bits most tokens are.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from small_model import folder

CHUNK = 128
TEXT = [(7 * i * i + 3 * i) % 500 + 3 for i in range(300)]
OTHER = [(11 * i * i + 5 * i) % 500 + 3 for i in range(300)]


def engine(model, store=None, **extra):
    from vllm import LLM
    from vllm.config import KVTransferConfig
    options = {}
    if store is not None:
        options = {"disable_hybrid_kv_cache_manager": True, "kv_transfer_config": KVTransferConfig(
            kv_connector="BallastConnector", kv_connector_module_path="ballast.vllm",
            kv_role="kv_both", kv_connector_extra_config={"path": store, "chunk": CHUNK, **extra})}
    return LLM(model, enforce_eager=True, max_model_len=1024, dtype="bfloat16", skip_tokenizer_init=True,
               enable_prefix_caching=False, max_num_seqs=4, block_size=32, **options)


def answers(llm, *prompts):
    """Of each prompt: tokens, and how many of the prompt were not computed."""
    from vllm import SamplingParams
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    out = llm.generate([{"prompt_token_ids": p} for p in prompts], sampling, use_tqdm=False)
    return [[list(o.outputs[0].token_ids), o.num_cached_tokens] for o in out]


def run(name, model, store):
    """What a process of its own does and says."""
    question = TEXT + [9, 8, 7]
    if name == "plain":
        return answers(engine(model), question, OTHER)
    if name == "first":
        return answers(engine(model, store), question, OTHER)  # two at once
    if name == "small":
        return answers(engine(model, store, size=1), question)
    llm = engine(model, store)
    return answers(llm, question, OTHER) + answers(llm, TEXT + [1, 2, 3, 4])


class Connector(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.model = folder(cls.temporary.name, weights=True)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def process(self, name, store=None):
        environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                       "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        out = subprocess.run([sys.executable, __file__, name, self.model, str(store)], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        self.assertEqual(out.returncode, 0, out.stdout[-3000:])
        line = [part for part in out.stdout.splitlines() if part.startswith("RESULT ")][-1]
        return json.loads(line[7:]), out.stdout

    def test_texts_are_read_once(self):
        store = Path(self.temporary.name, "store")
        plain, _ = self.process("plain")
        first, _ = self.process("first", store)
        self.assertEqual(first, plain)  # nothing is loaded yet
        files = [f for f in store.rglob("*") if f.is_file()]
        self.assertEqual(len(files), 4)  # two chunks of each text
        again, _ = self.process("again", store)
        self.assertEqual([cached for _, cached in again], [256, 256, 256])
        same = sum(a == b for (x, _), (y, _) in zip(again, plain) for a, b in zip(x, y))
        self.assertGreaterEqual(same, 10, (again, plain))

        files[0].write_bytes(files[0].read_bytes()[:1000])  # damaged: computed anew
        mended, log = self.process("again", store)
        self.assertEqual(sum(part.count("is computed anew") for part in log.splitlines()), 1)
        sizes = [f.stat().st_size for f in store.rglob("*") if f.is_file()]
        self.assertTrue(min(sizes) > 1000 and len(sizes) >= 3)  # the next prompt keeps it
        self.assertEqual(len(mended), 3)

    def test_a_folder_that_cannot_be_written_or_is_full(self):
        plain, _ = self.process("plain")
        file = Path(self.temporary.name, "file")
        file.write_text("no folder")
        out, log = self.process("first", file)
        self.assertEqual(out, plain)
        self.assertEqual(log.count("chunks are not kept"), 1)
        store = Path(self.temporary.name, "small")
        self.process("small", store)
        self.assertLessEqual(len([f for f in store.rglob("*") if f.is_file()]), 1)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print("\nRESULT " + json.dumps(run(*sys.argv[1:])), flush=True)
        sys.stdout.flush()
        os._exit(0)  # threads of vLLM may live on
    unittest.main()
