"""ballast.vllm on vLLM's CPU backend: texts are read once, kept, and loaded by the next process.

The model has random weights, whose answers the least change of a cache turns. So they are compared
with rows that are kept as they are, in place of the codec's; with the codec the first tokens'
probabilities are.
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


def engine(model, store=None, shares=False, **extra):
    from vllm import LLM
    from vllm.config import KVTransferConfig
    options = {}
    if store is not None:
        options = {"disable_hybrid_kv_cache_manager": True, "kv_transfer_config": KVTransferConfig(
            kv_connector="BallastConnector", kv_connector_module_path="ballast.vllm",
            kv_role="kv_both", kv_connector_extra_config={"path": store, "chunk": CHUNK, **extra})}
    return LLM(model, enforce_eager=True, max_model_len=1024, dtype="bfloat16", skip_tokenizer_init=True,
               enable_prefix_caching=shares, max_num_seqs=4, block_size=32, **options)


def answers(llm, *prompts):
    """Of each prompt: tokens, how many of the prompt were not computed, and log probabilities of the
    likeliest first tokens."""
    from vllm import SamplingParams
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False, logprobs=20)
    out = llm.generate([{"prompt_token_ids": p} for p in prompts], sampling, use_tqdm=False)
    return [[list(o.outputs[0].token_ids), o.num_cached_tokens,
             {str(t): x.logprob for t, x in o.outputs[0].logprobs[0].items()}] for o in out]


class Rows:
    """In place of the codec: rows as they are."""

    def encode(self, kv, position):
        import torch
        return torch.stack([torch.stack(side) for side in kv]).view(torch.uint8).numpy().tobytes()

    def decode(self, chunk, kv):
        import torch
        rows = torch.frombuffer(bytearray(chunk), dtype=torch.bfloat16)
        for part, layer in zip(rows.chunk(2 * len(kv[0])), [*kv[0], *kv[1]]):
            layer.copy_(part.view_as(layer))


def run(name, model, store):
    """What a process of its own does and says."""
    if name.startswith("rows-"):
        from ballast import _hosts
        _hosts.ModelShape.codec = lambda *arguments: Rows()
        name = name[5:]
    question = TEXT + [9, 8, 7]
    if name == "plain":
        return answers(engine(model), question, OTHER)
    if name == "first":
        return answers(engine(model, store), question, OTHER)  # two at once
    if name == "shares":  # vLLM has more of the second prompt itself than the store has
        llm = engine(model, store, shares=True)
        return answers(llm, question) + answers(llm, TEXT + [1, 2, 3, 4])
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
        plain, _ = self.process("plain")
        store = Path(self.temporary.name, "rows")
        self.process("rows-first", store)
        again, _ = self.process("rows-again", store)
        self.assertEqual([one[1] for one in again], [256, 256, 256])
        self.assertEqual([one[0] for one in again[:2]], [one[0] for one in plain])

        store = Path(self.temporary.name, "store")
        first, _ = self.process("first", store)
        self.assertEqual(first, plain)  # nothing is loaded yet
        files = [f for f in store.rglob("*") if f.is_file()]
        self.assertEqual(len(files), 4)  # two chunks of each text
        again, _ = self.process("again", store)
        self.assertEqual([one[1] for one in again], [256, 256, 256])
        for one, other in zip(again, plain):
            both = set(one[2]) & set(other[2])
            self.assertGreater(len(both), 10)
            self.assertLess(max(abs(one[2][t] - other[2][t]) for t in both), 0.3)

        shared, _ = self.process("shares", store)
        self.assertEqual([one[1] for one in shared], [256, 288])

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
