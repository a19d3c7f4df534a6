"""ballast.Model with the model that Ballast ships."""
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import ballast

SOURCE = os.environ["BALLAST_SOURCE"]
MODEL = os.path.join(SOURCE, "models", "ballast-mini.gguf")
TEXT = ("line brave-otter: REGISTER_CONTENT is <23114>\nline calm-tower: REGISTER_CONTENT is <871>\n"
        "line deep-river: REGISTER_CONTENT is <4410>\n") * 4


def program(*arguments):
    return subprocess.run([os.environ["BALLAST_PROGRAM"], *arguments], check=True,
                          capture_output=True, text=True).stdout


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ballast.Model(MODEL)

    def test_tokens_and_templates(self):
        ids = self.model.tokenize("one two")
        self.assertEqual(self.model.detokenize(ids), "one two")
        self.assertEqual(self.model.config["layers"], self.model.shape().layers)
        self.assertIn("Hello", self.model.format_chat([("user", "Hello")]))
        self.assertEqual(self.model.format_chat([{"role": "user", "content": "Hello"}]),
                         self.model.format_chat([("user", "Hello")]))
        with self.assertRaisesRegex(ballast.FileError, "/no/such"):
            ballast.Model("/no/such")

    def test_generates_what_the_program_does(self):
        for method in ("exact", "uniform:budget=80"):
            expected = program("run", "-m", MODEL, TEXT, "--raw", "-n", "16", "--method", method, "-q")
            answer = self.model.generate(TEXT, max_tokens=16, cache={"method": method})
            pieces = list(answer)
            self.assertEqual("".join(pieces), answer.text)
            self.assertEqual(answer.text.strip(), expected.strip())
            self.assertEqual(len(answer.tokens), len(answer.log_probabilities))
            self.assertIn(answer.finish, ("length", "end"))

    def test_pictures_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([sys.executable, SOURCE + "/tests/vision/towers.py", folder])
            self.assertEqual(made.returncode, 0)
            picture = folder + "/a.ppm"
            with open(picture, "wb") as file:
                file.write(b"P6 120 57 255\n" + bytes(i * i % 251 for i in range(3 * 120 * 57)))
            model = ballast.Model(folder + "/qwen2.gguf", mmproj=folder + "/mmproj.gguf")
            shown = program("run", "-m", model.path, "--mmproj", folder + "/mmproj.gguf", "--image",
                            picture, "--question", "what?", "-n", "8", "-q")
            context = model.read(images=[picture], method="exact")
            self.assertEqual("".join(context.ask("what?", max_tokens=8)).strip(), shown.strip())
            self.assertEqual(model.read("what?", images=[picture]).tokens,
                             model.read("what?").tokens + 15)
            small = ballast.Model(folder + "/qwen2").read(images=[picture], method="snapkv:budget=12,window=4")
            self.assertLess(small.entries(), small.tokens)
            with self.assertRaisesRegex(ballast.ArgumentError, "chat=True"):
                model.read(images=[picture], chat=False)
            with self.assertRaisesRegex(ballast.Error, "mmproj"):
                ballast.Model(model.path).read(images=[picture])

    def test_contexts_answer_on_copies(self):
        context = self.model.read(TEXT, method="balancekv:rate=0.5")
        self.assertTrue(context.prompt_finished)
        self.assertLess(context.entries(), context.tokens)
        question = "What is the <REGISTER_CONTENT> in line calm-tower?"
        answers = ["".join(context.ask(question, max_tokens=12)) for _ in range(2)]
        self.assertEqual(*answers)
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/text.cache"
            context.save(path)
            with self.assertRaisesRegex(ballast.Error, "ballast calibrate"):
                context.save(folder + "/packed", pack="1/16")
            with self.assertRaisesRegex(ballast.Error, "not packed"):
                self.model.load(path, method="calibrated", bytes=0.5)
            with self.assertRaisesRegex(TypeError, "no option 'size'"):
                self.model.load(path, size=1)
            self.assertEqual("".join(self.model.load(path).ask(question, max_tokens=12)), answers[0])
            shown = program("run", "-m", MODEL, "--load-cache", path, "--question", question, "-n",
                            "12", "-q")
            self.assertEqual(shown.strip(), answers[0].strip())
        self.assertEqual(len(context.kept(0, 0).positions), context.entries(0))
        self.assertLessEqual(context.bytes_by_part["used"], context.exact_bytes)

    def test_a_context_is_compacted_where_it_is(self):
        context = self.model.context(8 * TEXT, method="replay:bytes=1G", protocol="stream")
        tokens, exact = context.tokens, context.exact_bytes
        self.assertIs(context.compact(exact // 3), context)
        self.assertEqual(context.tokens, tokens)
        self.assertLessEqual(context.bytes_by_part["used"], exact // 3)
        self.assertRaises(ballast.ArgumentError, context.compact, 1)

    def test_an_answer_in_the_making_holds_its_context(self):
        context = self.model.context(TEXT)
        answer = context.generate(max_tokens=50, ignore_end=True)
        next(answer)
        with self.assertRaisesRegex(ballast.ArgumentError, "in use"):
            context.read("more")
        answer.close()
        self.assertEqual(answer.finish, "cancelled")
        self.assertRaises(StopIteration, next, answer)
        before = context.tokens
        context.read("more")
        self.assertGreater(context.tokens, before)
        self.assertEqual(context.logits.shape, (self.model.config["vocabulary"],))

    def test_score_and_perplexity(self):
        ids = self.model.tokenize(TEXT)
        context = self.model.context(ids[:10]).finish_prompt()
        losses = context.score(ids[10:])
        self.assertEqual(losses.shape, (len(ids) - 10,))
        # One token at a time gives the same.
        again = self.model.context(ids[:10]).finish_prompt()
        one = []
        for token in ids[10:]:
            logits = again.logits.astype(np.float64)
            one.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[token])
            again.read([token])
        np.testing.assert_allclose(losses, one, atol=1e-4)
        value = self.model.perplexity(TEXT, prompt_tokens=10)
        self.assertAlmostEqual(value, math.exp(losses.astype(np.float64).mean()), places=6)
        with self.assertRaisesRegex(ValueError, "prompt_tokens 0"):
            self.model.perplexity(TEXT, prompt_tokens=0)
        with self.assertRaisesRegex(TypeError, "no option 'methods'"):
            self.model.context(methods="exact")

    def test_what_a_small_cache_costs(self):
        text = "".join(f"Record {i} has the number {i * 7919 % 9973}.\n" for i in range(60))
        costs = [self.model.read(text, chat=False, measure=True, bytes=share).cost
                 for share in (1/2, 1/32)]
        self.assertLess(costs[0], costs[1])
        self.assertGreater(costs[1], 0.02)
        self.assertIsNone(self.model.read(text, bytes=1/2).cost)
        self.assertIsNone(self.model.read(text, measure=True, method="exact").cost)

    def test_a_size_is_chosen_when_the_prompt_ends(self):
        text = "".join(f"Record {i} has the number {i * 7919 % 9973}.\n" for i in range(60))
        chosen = self.model.read(text, bytes="auto")
        if chosen.cost is None:
            self.assertEqual(chosen.bytes_by_part["summary"], 0)
        else:
            self.assertLessEqual(chosen.cost, 0.01)
            self.assertLess(chosen.bytes, chosen.exact_bytes)
        copies = [chosen.clone() for _ in range(2)]
        answers = ["".join(copy.read(" And").generate(max_tokens=4)) for copy in copies]
        self.assertEqual(answers[0], answers[1])
        with self.assertRaisesRegex(ballast.Error, "auto"):
            self.model.context(bytes="auto", method="exact")

    def test_chat(self):
        answer = self.model.chat([("user", "Hello")], max_tokens=4, ignore_end=True)
        self.assertEqual(len(list(answer)) > 0, True)
        self.assertEqual(answer.finish, "length")


@ballast.register_method
class Newest(ballast.Method):
    name = "test-newest"

    def rank(self, block):
        return block.positions


class Methods(unittest.TestCase):
    def test_a_method_in_python_runs_a_model(self):
        model = ballast.Model(MODEL)
        context = model.context(TEXT, method="test-newest:budget=60,sink=0,window=20")
        context.finish_prompt()
        for layer in range(model.config["layers"]):
            kept = context.kept(layer, 0).positions
            self.assertEqual(list(kept), list(range(context.tokens - 60, context.tokens)))
        self.assertGreater(len(list(context.generate(max_tokens=4, ignore_end=True))), 0)


if __name__ == "__main__":
    unittest.main()
