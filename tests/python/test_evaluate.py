"""ballast.evaluate() against the program's own results."""
import json
import os
import signal
import subprocess
import tempfile
import threading
import unittest

import ballast

MODEL = os.path.join(os.environ["BALLAST_SOURCE"], "models", "ballast-mini.gguf")
SMALL = {"lines": [20], "repeat": 2, "max_tokens": 6}


def program(*words):
    done = subprocess.run([os.environ["BALLAST_PROGRAM"], *words], check=True, capture_output=True,
                          text=True)
    return json.loads(done.stdout)


def settled(rows):
    """Rows without what a clock says and without the command's text."""
    return [{k: v for k, v in row.items() if "second" not in k and k != "command"} for row in rows]


@ballast.register_method
class Newest(ballast.Method):
    name = "test-newest"

    def rank(self, block):
        return block.positions


@ballast.register_method
class Broken(ballast.Method):
    name = "test-broken"

    def rank(self, block):
        raise RuntimeError("no rank today")


class Evaluate(unittest.TestCase):
    def test_gives_what_the_program_does(self):
        methods = ["exact", "uniform", "balancekv:beta=4"]
        records = ballast.evaluate("lines", model=MODEL, methods=methods, bytes=[1 / 4, 1 / 2],
                                   seeds=2, question_later=True, **SMALL)
        result = program("eval", "lines", "-m", MODEL, "--methods", ";".join(methods), "--shares",
                         "0.25,0.5", "--lines", "20", "--repeat", "2", "--max-tokens", "6",
                         "--seeds", "2", "--question-later", "--json")
        self.assertEqual(settled(records), settled(result["results"]))
        self.assertEqual(len(records), 5)
        self.assertEqual((records.title, records.notes), (result["title"], result["notes"]))
        settings = dict(records.settings, model="")
        self.assertEqual(settings, dict(result["settings"], model=""))
        self.assertTrue(records[0]["command"].startswith("ballast eval lines "))

    def test_bytes_are_amounts_too(self):
        rows = ballast.evaluate("lines", model=MODEL, methods=["streaming-llm"], bytes=["256K", 1 / 2],
                                **SMALL)
        self.assertEqual([row.get("cache", row.get("share")) for row in rows], ["256K", 0.5])
        self.assertLessEqual(rows[0]["cache_bytes"], 256 << 10)
        with self.assertRaisesRegex(ValueError, "such as '256M'"):
            ballast.evaluate("lines", model=MODEL, bytes=1 << 20, **SMALL)

    def test_attention_of_a_made_up_stream(self):
        given = {"tokens": 300, "sink": 8, "window": 64, "queries": 64, "methods": "uniform;h2o", "rates": 0.5}
        words = [f"--{key}={value}" for key, value in given.items()]
        result = program("eval", "attention", "--synth", *words, "--json")
        self.assertEqual(settled(ballast.evaluate("attention", synth=True, **given)),
                         settled(result["results"]))

    def test_methods_in_python_stand_beside_the_others(self):
        model = ballast.Model(MODEL)
        newest = "test-newest:sink=4,window=32"
        records = ballast.evaluate("lines", model=model, methods=[newest, "streaming-llm:sink=4"],
                                   budgets=120, **SMALL)
        ours, theirs = records
        self.assertEqual(ours["method"], newest)
        # Both keep the first tokens and the latest ones.
        self.assertEqual(ours["score"], theirs["score"])
        self.assertAlmostEqual(ours["entries"], theirs["entries"], delta=1)
        with self.assertRaisesRegex(RuntimeError, "no rank today"):
            ballast.evaluate("lines", model=model, methods="test-broken", rates=0.5, **SMALL)

    def test_refuses_what_the_program_refuses(self):
        wrong = [({"no_such": 1}, "unknown option --no-such"), ({"repeat": -1}, "whole number"),
                 ({"methods": "nothing"}, "nothing"), ({"lines": []}, "at least one"),
                 ({"bytes": 4096}, "such as 1/8"), ({"seeds": 0}, "seeds")]
        for options, text in wrong:
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                ballast.evaluate("lines", model=MODEL, **options)
        with self.assertRaisesRegex(ballast.ArgumentError, "unknown experiment 'line'; did you mean"):
            ballast.evaluate("line")
        with self.assertRaisesRegex(ballast.FileError, "/no/such"):
            ballast.evaluate("lines", model="/no/such", **SMALL)
        self.assertRaises(ValueError, ballast.evaluate, "lines", model=MODEL, quiet=True)
        self.assertRaises(ValueError, ballast.evaluate, "paper")

    def test_writes_a_file_and_goes_on_after_an_interruption(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lines.json")
            call = {"model": MODEL, "methods": "uniform", "rates": 0.5, "json": path, **SMALL}
            seen = []

            def stop(done):
                seen.append(done)
                if len(seen) == 2:
                    raise KeyError("enough")

            with self.assertRaisesRegex(KeyError, "enough"):
                ballast.evaluate("lines", progress=stop, **call)
            self.assertEqual(len(seen), 2)
            self.assertEqual(os.listdir(folder), ["lines.json.progress"])
            records = ballast.evaluate("lines", **call)
            self.assertEqual(os.listdir(folder), ["lines.json"])
            with open(path) as file:
                self.assertEqual(json.load(file)["results"], list(records))

    def test_a_signal_ends_it(self):
        def interrupt(done):
            signal.raise_signal(signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            ballast.evaluate("lines", model=MODEL, methods="uniform", rates=0.5, progress=interrupt,
                             lines=[20], repeat=100)

    def test_two_threads_at_once(self):
        results = {}

        def run(method):
            results[method] = ballast.evaluate("lines", model=MODEL, methods=method, rates=0.5,
                                               **SMALL)

        methods = ["uniform", "test-newest"]
        threads = [threading.Thread(target=run, args=(m,)) for m in methods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for method in methods:
            self.assertEqual([row["method"] for row in results[method]], [method])


if __name__ == "__main__":
    unittest.main()
