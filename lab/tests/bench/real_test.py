"""The lines of lab/results/real and the numbers of lab/docs/evidence.md (lab/bench/real_rows.py, real_page.py)."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import real_data  # noqa: E402
import real_functions  # noqa: E402
import real_page  # noqa: E402
import real_picture  # noqa: E402
import real_plan  # noqa: E402
import real_rows  # noqa: E402


def line(method, share, scores, contexts=2, **more):
    return {"task": "fwe", "length": 4096, "first": 1, "contexts": contexts, "engine": "ballast", "method": method,
            "share": share, "scores": scores, "bytes": share or 1.0} | more


class Real(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "model.jsonl"

    def tearDown(self):
        self.folder.cleanup()

    def test_lines_add_up_and_none_stands_twice(self):
        real_rows.append(self.path, [line("exact", None, [1, 1])])
        real_rows.append(self.path, [line("exact", None, [0, 0]), line("h2o", 0.25, [1, 0])])
        self.assertEqual([row["scores"] for row in real_rows.read(self.path)], [[1, 1], [1, 0]])

    def test_a_method_is_missing_until_every_size_is_there(self):
        def missing(first):
            return real_rows.missing(self.path, "fwe", 4096, first, ["exact", "h2o"], ["1/4", "1/8"])

        self.assertEqual(missing(1), ["exact", "h2o"])
        real_rows.append(self.path, [line("exact", None, [1, 1]), line("h2o", 0.25, [1, 0])])
        self.assertEqual(missing(1), ["h2o"])
        real_rows.append(self.path, [line("h2o", 0.125, [0, 0])])
        self.assertEqual(missing(1), [])
        self.assertEqual(missing(6), ["exact", "h2o"])

    def test_results_of_the_program_become_lines(self):
        row = {"task": "fwe", "method": "h2o", "share": 0.25, "scores": [1.0, 0.0], "cache_bytes": 250,
               "exact_bytes": 1000, "read_seconds": 2, "compress_seconds": 0.5, "seconds_per_token": 0.01}
        mean = row | {"task": "all"}
        unfit = row | {"fits": False, "cache_bytes": None, "scores": None}
        made = real_rows.rows_of({"results": [row, mean, unfit]}, "fwe", 4096, 1, 2)
        self.assertEqual(len(made), 2)
        self.assertEqual(made[0]["bytes"], 0.25)
        self.assertNotIn("bytes", made[1])

    def test_losses_are_paired_and_a_text_counts_once(self):
        # Of two texts one loses both questions, the other none: a mean of -50 with an error of 50.
        real_rows.append(self.path, [line("exact", None, [1, 1, 1, 1]), line("h2o", 0.25, [0, 0, 1, 1])])
        model = real_page.Model(self.path)
        mean, half, tasks = model.loss(("ballast", "h2o", 0.25), 4096)
        self.assertEqual((mean, tasks), (-50, 1))
        self.assertAlmostEqual(half, 1.96 * 50)
        self.assertIsNone(model.loss(("ballast", "h2o", 0.125), 4096))

    def test_no_difference_has_the_error_of_the_rule_of_three(self):
        real_rows.append(self.path, [line("exact", None, [1] * 20), line("h2o", 0.25, [1] * 20)])
        mean, half, _ = real_page.Model(self.path).loss(("ballast", "h2o", 0.25), 4096)
        self.assertEqual(mean, 0)
        self.assertAlmostEqual(half, 15)

    def test_tasks_at_chance_do_not_count(self):
        real_rows.append(self.path, [line("exact", None, [0.1] * 4), line("h2o", 0.25, [0] * 4)])
        model = real_page.Model(self.path)
        self.assertEqual(model.counted("ballast", 4096), [])
        self.assertIsNone(model.loss(("ballast", "h2o", 0.25), 4096))

    def test_a_peer_is_held_against_its_own_exact_cache(self):
        real_rows.append(self.path, [line("exact", None, [1, 1]), line("exact", None, [1, 0], engine="kvpress"),
                                     line("snapkv", 0.25, [1, 0], engine="kvpress")])
        model = real_page.Model(self.path)
        self.assertEqual(model.loss(("kvpress", "snapkv", 0.25), 4096)[0], 0)
        self.assertEqual(model.loss(("kvpress", "exact", None), 4096)[0], -50)

    def test_lengths_are_apart(self):
        for length, score in ((4096, 1), (2048, 0)):
            real_rows.append(self.path, [line("exact", None, [1, 1], length=length),
                                         line("h2o", 0.25, [score, score], length=length)])
        model = real_page.Model(self.path)
        self.assertEqual([model.loss(("ballast", "h2o", 0.25), n)[0] for n in model.lengths()], [-100, 0])

    def test_forms_of_packed_contexts_are_sizes_of_one_method(self):
        real_rows.append(self.path, [line("exact", None, [1, 1]), line("packed:1/16", None, [1, 0], bytes=0.066)])
        model = real_page.Model(self.path)
        self.assertEqual(model.loss(("ballast", "packed", 0.0625), 4096)[0], -50)
        self.assertTrue(real_page.cell(model, ("ballast", "packed", 0.0625), 4096).startswith("0.066: −50 ± "))
        self.assertEqual(real_rows.shares_of("packed:1/16", ["1/4", "1/8"]), [None])

    def test_other_answers_of_the_exact_cache_are_said(self):
        real_rows.append(self.path, [line("exact", None, [1, 1])])
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            real_rows.append(self.path, [line("exact", None, [1, 0])])
        self.assertIn("scores 1 in place of 2", said.getvalue())

    def test_a_plan_lists_what_is_missing_and_its_time(self):
        group = real_plan.Group("none-of-this-name", 4096, "fwe qa_plain", 5, 5, "exact;h2o", "1/4,1/8")
        found = list(real_plan.jobs(group))
        # Four rounds have qa_plain's eight documents.
        self.assertEqual([task for task, *_ in found].count("qa_plain"), 4)
        self.assertEqual(found[1], ("qa_plain", 0, 1, 2, ["exact", "h2o"]))
        rows = [line("exact", None, [1, 1], read=20, compress=0, token=0.1),
                line("h2o", 0.25, [1, 1], read=20, compress=3, token=0.1)]
        measured = real_plan.seconds_of(rows, 8192)
        self.assertEqual(measured[0], 40)
        # A reading, three sets of a question's 16 tokens, h2o twice.
        self.assertAlmostEqual(real_plan.run_seconds(measured, ["exact", "h2o"], ["1/4", "1/8"], 2, 1),
                               2 * (40 + 2 * 6 + 3 * 1.6))

    def test_labels_of_the_picture_do_not_overlap(self):
        self.assertEqual(real_picture.apart([10, 12, 40], 20), [10, 30, 50])

    def test_a_written_function_is_right_if_it_returns_the_same(self):
        texts, result = self.path.with_name("functions.jsonl"), self.path.with_name("result.json")
        real_functions.make(texts, 1024, 1, 1)
        source = json.loads(texts.read_text().splitlines()[0])["outputs"][0]
        rest = source.partition("(")[2]
        other = rest.replace("return", "return 1 +")
        answers = [rest + "\n```\nThat is it.", rest.replace("    ", "  "), other, "a, b):\n    while True: pass\n"]
        texts.write_text("".join(json.dumps({"answer_prefix": "```python\n" + source.partition("(")[0] + "(",
                                             "outputs": [source]}) + "\n" for _ in answers))
        result.write_text(json.dumps({"results": [{"method": "exact", "answers": answers}]}))
        real_functions.SECONDS = 1
        real_functions.grade(texts, result)
        self.assertEqual(json.loads(result.read_text())["results"][0]["scores"], [1, 1, 0, 0])

    def test_tasks_of_other_lengths_have_a_table_with_the_form_of_packed_contexts_that_most_have(self):
        place = {"task": "tools", "length": 2048}
        real_rows.append(self.path, [line("exact", None, [1, 1], **place),
                                     line("packed:1/32", None, [1, 0], bytes=0.036, **place),
                                     line("h2o", 0.125, [0, 0], **place)])
        made = "\n".join(real_page.by_task(real_page.Model(self.path), 2048))
        self.assertIn("| `packed` at 1/32 | −50 ", made)
        self.assertIn("| `h2o` | −100 ", made)

    def test_shifted_documents_are_the_same_further_on(self):
        documents, out = self.path.with_name("documents.jsonl"), self.path.with_name("shifted.jsonl")
        document = {"text": "A text.\n", "questions": [{"q": "What?", "accept": ["text"]}]}
        documents.write_text(json.dumps(document) + "\n")
        real_data.plain(documents, out, 0, 1, shifted=True)
        self.assertEqual(json.loads(out.read_text())["input"], "Read on on on.\n\nA text.\n\nWhat?")


if __name__ == "__main__":
    unittest.main()
