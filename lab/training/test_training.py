"""Checks of the training code: python3 -m unittest test_training (a vocabulary and PyTorch are all it needs).

What is compared with the engine needs its binary: the environment's BALLAST, or build/ballast of the project."""

import argparse
import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import numpy
import sentencepiece
import torch

import ask_texts
import benchmarks
import checkpoint
import chunks
import data
import evaluate
import export
import finding
import fused
import model as models
import ruler_files
import stories
import train
import vocabulary

HERE = os.path.dirname(os.path.abspath(__file__))
PROCESSOR = sentencepiece.SentencePieceProcessor(model_file=os.path.join(HERE, "vocabulary.model"))
ENCODER = data.Encoder(PROCESSOR)
SHIPPED = os.path.join(HERE, "..", "..", "models", "ballast-mini.gguf")


EXAMPLES = os.path.join(HERE, "..", "..", "examples")


def engine():
    """The engine's binary, or the reason to skip what needs it."""
    binary = os.environ.get("BALLAST", os.path.join(HERE, "..", "..", "build", "ballast"))
    if not os.access(binary, os.X_OK):
        raise unittest.SkipTest(f"{binary} is not there; BALLAST names the engine's binary")
    return binary


def open_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def text_of(parts):
    return "".join(chunk for chunk, _ in parts)


def encode_turns(text):
    """As the engine cuts a text in which turns are marked."""
    ids = []
    for part in re.split("(" + "|".join(map(re.escape, chunks.TURNS)) + ")", text):
        ids += [PROCESSOR.piece_to_id(part)] if part in chunks.TURNS else PROCESSOR.encode(part)
    return ids


def small_model(seed=1, layers=2):
    model = models.Model(models.Shape(vocabulary=PROCESSOR.vocab_size(), layers=layers))
    models.initialise(model, seed)
    return model


class Data(unittest.TestCase):
    def test_chunks_are_cut_like_the_whole_text(self):
        rng = random.Random(3)
        total = differ = 0
        for task in data.TASKS:
            for _ in range(20):
                parts = data.TASKS[task](rng, ENCODER, 200, 0.5)
                for form in [parts] + ([data.chat(rng, parts)] if chunks.QUESTION in parts else []):
                    total += 1
                    differ += encode_turns(text_of(form)) != ENCODER.sample(form)[0][1:]
        self.assertLessEqual(differ, total // 20)  # a rare junction, such as "is" before a made-up word in a-

    def test_longeval_lines_are_cut_alike_in_record_and_question(self):
        rng = random.Random(4)
        for _ in range(50):
            parts = finding.lines(rng, ENCODER, 300, 0.8, questions=1)
            whole = encode_turns(text_of(parts))
            self.assertEqual(whole, ENCODER.sample(parts)[0][1:])

    def test_digits_stand_alone_and_any_text_survives(self):
        for text in ("line a-b: REGISTER_CONTENT is <12345>", "1234567890", "naïve 東京 \U0001f600\ttab\n\n  two  spaces ",
                     ""):
            ids = PROCESSOR.encode(text)
            self.assertEqual(PROCESSOR.decode(ids), text)
            for i in ids:
                piece = PROCESSOR.id_to_piece(i)
                if any(c.isdigit() for c in piece) and not PROCESSOR.is_byte(i):
                    self.assertEqual(len(piece), 1)

    def test_same_question_every_time(self):
        for task in data.TASKS:
            self.assertEqual(data.test_question(task, ENCODER, 256, 7), data.test_question(task, ENCODER, 256, 7))
            self.assertNotEqual(data.test_question(task, ENCODER, 256, 7), data.test_question(task, ENCODER, 256, 8))

    def test_test_questions_are_never_in_training(self):
        forbidden = data.held_out(ENCODER, (256,), 4)
        self.assertGreater(len(forbidden), 3 * len(data.TASKS))
        for task in data.TASKS:
            rng = random.Random(f"test/{task}/256/3")
            drawn = []

            def once(given, encoder, room, share, questions=None, make=data.TASKS[task], rng=rng, drawn=drawn):
                """A source that writes the test question before any other text."""
                drawn.append(task)
                while len(drawn) == 1:
                    share = {"labelling": 0.6, "copying": 0.5}.get(task, 1.0 - min(0.5, 60.0 / room))
                    parts = make(rng, encoder, room, share, questions=1)
                    if any(learn for chunk, learn in parts if chunk):
                        return parts
                return chunks.fixed("another")

            with mock.patch.dict(data.TASKS, {task: once}):
                ids, _ = data.training_sample(random.Random(1), ENCODER, {task: 1}, 256, 0.5, forbidden)
                self.assertEqual((task, ids[1:], len(drawn)), (task, PROCESSOR.encode("another"), 2))
                drawn.clear()
                rng.seed(f"test/{task}/256/3")
                data.training_sample(random.Random(1), ENCODER, {task: 1}, 256, 0.5)
                self.assertEqual(len(drawn), 1)  # nothing else refuses it

    def test_answers_follow_from_the_context(self):
        for number in range(20):
            for task, check in CHECKS.items():
                prompt, answer = data.test_question(task, ENCODER, 400, number)
                check(self, PROCESSOR.decode(prompt), PROCESSOR.decode(answer).strip(" \n"))

    def test_a_story_holds_facts_of_several_kinds_once(self):
        most = collections.Counter()
        for number in range(40):
            _, asked = data.turns(stories.stories(random.Random(number), ENCODER, 1500, 0.7))
            questions = [text_of(question) for question, _, _ in asked]
            self.assertEqual(len(questions), len(set(questions)), questions)
            most.update({word for question in questions for word in ("pass", "magic", "did", "born", " of the")
                         if word in question})
        self.assertTrue(all(count >= 8 for count in most.values()) and len(most) == 5, most)

    def test_examples_are_not_in_the_training_words(self):
        told = open_text(os.path.join(EXAMPLES, "story.txt"))
        written = "".join(open_text(os.path.join(HERE, source)) for source in (
            "stories.py", "benchmarks.py", "finding.py", "chunks.py", "data.py", "words.py"))
        for answer in ("Osterby", "Kessel", "61825", "Tarven", "Halm", "Branick", "4821937", "7305164", "2960483"):
            self.assertTrue(answer in told and answer not in written, answer)

    def test_texts_by_hand_hold_the_answers_to_their_questions(self):
        for base in sum(ask_texts.GROUPS.values(), []):
            text, questions, answers = (open_text(base + end) for end in (".txt", "-questions.txt", "-answers.txt"))
            self.assertEqual(len(questions.splitlines()), len(answers.splitlines()), base)
            for answer in answers.splitlines():
                self.assertTrue(ask_texts.is_right(answer, answer) and answer.lower() in text.lower(), (base, answer))
        self.assertTrue(ask_texts.is_right("It is on 4 March.", "4 march"))
        self.assertFalse(ask_texts.is_right("4 May", "4 March") or ask_texts.is_right("4 March " + "x" * 40, "4 March"))

    def test_replay_repeats_what_stands_after_the_tokens_given(self):
        found = collections.Counter()
        for number in range(60):
            parts = benchmarks.replay(random.Random(number), ENCODER, 500, 0.5)
            text = "".join(chunk if not learn or chunk == chunks.END else f"\0{chunk}\1" for chunk, learn in parts)
            text = text.replace("\1\0", "")
            given, copied = re.search("^(.*?)\0(.*?)\1", text, re.DOTALL).groups()
            before = re.split(re.escape(benchmarks.REPEAT_PART) + "|" + re.escape(benchmarks.REPEAT_ALL), given)
            found[len(before), before[-1].endswith(chunks.ASSISTANT)] += 1
            if len(before) == 2:
                lead = before[1].removeprefix(".").replace(chunks.ASSISTANT, "")
                self.assertIn(lead + copied, before[0])
            else:
                self.assertTrue(given.count(copied[:10]), given)
        self.assertTrue(all(found[case] for case in ((1, False), (2, False), (2, True))), found)

    def test_questions_have_several_wordings(self):
        rng = random.Random(2)
        for task, least in {"lines": 7, "needles": 5, "passkey": 4, "records": 5, "facts": 6, "variables": 3,
                            "stories": 20}.items():
            seen = set()
            for _ in range(60):
                for question, _, _ in data.turns(data.TASKS[task](rng, ENCODER, 400, 0.5))[1]:
                    seen.add(tuple(text_of(data.stripped(question)).split(" ")[:3]))
            self.assertGreater(len(seen), least, task)


def check_line(test, text, value):
    key = text.rsplit("in line ", 1)[1].split("?")[0]
    test.assertIn(f"line {key}: REGISTER_CONTENT is <{value}>\n", text)


def check_values(test, text, value):
    named = re.search(r"What are all the special magic \w+ for (.*) mentioned in the provided text\?", text).group(1)
    pairs = re.findall(r"One of the special magic \w+ for (.*?) is: (.*?)\.", text)
    asked = {key for key, _ in pairs if key in re.split(", | and ", named)}
    test.assertTrue(asked, named)
    test.assertEqual(sorted(found for key, found in pairs if key in asked), sorted(value.split(", ")))


def check_variables(test, text, value):
    wanted = re.search(r"assigned the value (\d+) in the text above", text).group(1)
    known = {}
    for name, source in re.findall(r"VAR ([A-Z]{5}) = (?:VAR )?(\w+)", text):
        known[name] = known.get(source, source)
    test.assertEqual([name for name in known if known[name] == wanted], value.split(" "))


def check_common(test, text, value):
    count = int(re.search(r"What are the (\d+) most common words", text).group(1))
    found = collections.Counter(re.findall(r"\d+\. (\w+)", text.split("Question:")[0]))
    test.assertEqual({word for word, _ in found.most_common(count)}, set(re.findall(r"\d+\. (\w+)", value)))


def check_frequent(test, text, value):
    body = text.split("coded words.")[1].split("Question:")[0]
    found = collections.Counter(re.findall("[a-z]+", body)).most_common(3)
    test.assertEqual([word for word, _ in found], value.split(", "))


def check_retrieval(test, text, value):
    paragraphs = re.findall(r"(Paragraph \d+): (.*)", text.split("The following is an abstract.")[0])
    abstract = text.split("The following is an abstract.\n\n")[1].split("\n\nPlease enter")[0]
    told = [part.strip(". ") for part in abstract.split(".") if part.strip()]
    test.assertTrue(any(name == value and all(part in body for part in told) for name, body in paragraphs))


def check_unique(test, text, value):
    test.assertEqual(len(set(re.findall(r"Paragraph \d+: (.*)", text))), int(value))


def check_facts(test, text, value):
    test.assertIn(" " + value + ".", text)


def check_story(test, text, value):
    story, question, lead = text.rsplit("\n", 2)
    test.assertEqual(lead, "Answer:")
    test.assertIn(value.lower(), story.lower(), question)  # "The" where a sentence begins


CHECKS = {"lines": check_line, "multivalue": check_values, "multiquery": check_values, "variables": check_variables,
          "common": check_common, "frequent": check_frequent, "retrieval": check_retrieval, "unique": check_unique,
          "facts": check_facts, "stories": check_story}


class Chat(unittest.TestCase):
    def test_form_is_what_the_template_makes_of_a_context_and_a_question(self):
        for number, task in enumerate(task for task in data.TASKS if task not in ("copying", "replay")):
            parts = data.TASKS[task](random.Random(f"test/{task}/300/{number}"), ENCODER, 300, 0.8, questions=1)
            self.assertIn(chunks.QUESTION, parts)
            context, asked = data.turns(parts)
            question, lead, answer = asked[0]
            written = text_of(data.stripped(question)) + ("?" if lead and lead[0][0].startswith("?") else "")
            text = f"<|user|>{text_of(context)}\n\n{written}<|assistant|>{text_of(answer)}<|end|>"
            form = data.plain_chat(parts)
            self.assertEqual(text_of(form), text)
            ids, learn = ENCODER.sample(form)
            self.assertEqual(ids[-1], PROCESSOR.piece_to_id("<|end|>"))
            self.assertTrue(learn[-1])
            self.assertEqual(text_of([part for part in form if part[1]]), text_of(answer) + "<|end|>")

    def test_every_answer_ends_in_plain_text_too(self):
        for task in data.TASKS:
            if task != "replay":
                _, answer = data.test_question(task, ENCODER, 300, 1)
                self.assertEqual(answer.index(PROCESSOR.piece_to_id("<|end|>")), len(answer) - 1, task)

    def test_turns_alternate_and_every_answer_ends(self):
        rng = random.Random(8)
        for task in ("lines", "facts", "records", "needles", "multiquery"):
            for _ in range(30):
                parts = data.chat(rng, data.TASKS[task](rng, ENCODER, 300, 0.5))
                marks = [(chunk, learn) for chunk, learn in parts if chunk in chunks.TURNS]
                if marks and marks[0][0] == chunks.SYSTEM:
                    marks = marks[1:]
                turn = [(chunks.USER, False), (chunks.ASSISTANT, False), (chunks.END, True)]
                self.assertEqual(marks, turn * (len(marks) // 3))
                for i, (chunk, learn) in enumerate(parts):
                    self.assertFalse(learn and chunk not in (chunks.END, "") and not parts[i + 1][1], parts[i:i + 2])

    def test_end_of_turn_and_template_are_in_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            export.write(path, small_model(), PROCESSOR)
            fields = export.read_fields(path)
        self.assertEqual(fields["tokenizer.chat_template"], data.TEMPLATE)
        pieces, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
        self.assertEqual(pieces[fields["tokenizer.ggml.eot_token_id"]], "<|end|>")
        for turn in chunks.TURNS:
            self.assertEqual(types[pieces.index(turn)], export.CONTROL)
        for phrase in benchmarks.phrases():
            self.assertEqual(types[pieces.index(phrase)], export.USER_DEFINED)

    def test_engine_reads_what_was_trained(self):
        """Tokens of the context and of the question, and what the model makes of them."""
        binary = engine()
        with tempfile.TemporaryDirectory() as folder:
            model, context_file = os.path.join(folder, "m.gguf"), os.path.join(folder, "context.txt")
            net = small_model()
            export.write(model, net, PROCESSOR)
            net = export.read(model).eval()
            for number, task in enumerate(("lines", "records", "facts", "variables", "retrieval")):
                parts = data.TASKS[task](random.Random(number), ENCODER, 300, 0.8, questions=1)
                context, asked = data.turns(parts)
                question, lead, _ = asked[0]
                with open(context_file, "w", encoding="utf-8") as file:
                    file.write(text_of(context))
                ids, learn = ENCODER.sample(data.plain_chat(parts))
                ids = ids[:learn.index(True)]
                ran = subprocess.run([binary, "run", "-m", model, "--context", context_file, "--question",
                                      text_of(data.stripped(question)), "--json", "--logprobs", "1", "--max-tokens",
                                      "1", "--key-type", "f32", "--value-type", "f32"], capture_output=True, text=True)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                found = json.loads(ran.stdout)
                read = found["statistics"]["prompt"]["tokens"] + found["statistics"]["question"]["tokens"]
                self.assertEqual(read, len(ids), task)
                with torch.no_grad():
                    logits = net(torch.tensor([ids]), torch.arange(len(ids))[None])[0, -1]
                first = found["answers"][0]["log_probabilities"][0]
                self.assertEqual(first["id"], int(logits.argmax()))
                self.assertAlmostEqual(first["log_probability"], float(logits.log_softmax(-1).max()), delta=0.02)


def example(name):
    """A text, and its questions with their answers."""
    found = []
    for part in ("", "-questions", "-answers"):
        with open(os.path.join(EXAMPLES, name + part + ".txt"), encoding="utf-8") as file:
            found.append(file.read())
    return found[0], list(zip(found[1].splitlines(), found[2].splitlines(), strict=True))


class Examples(unittest.TestCase):
    def test_answers_stand_with_what_is_asked_for(self):
        text, asked = example("record")
        self.assertEqual(len(asked), 8)
        for question, answer in asked:
            key = re.search(r"line ([a-z]+-[a-z]+)", question).group(1)
            self.assertEqual(text.count(f"line {key}: REGISTER_CONTENT is <{answer}>\n"), 1)
        text, asked = example("story")
        self.assertEqual(len(asked), 9)
        for question, answer in asked:
            name = re.search(r"(\w+-\w+) mentioned|(pass key)|(Mira|Joren|Pelle)", question)
            name = next(filter(None, name.groups()))
            self.assertTrue(any(name in sentence and re.search(rf"\b{answer}\b", sentence)
                                for sentence in text.split(".")), question)

    def test_shipped_model_answers_in_plain_text(self):
        binary = engine()
        for name, before, after in (("record", " ", " "), ("story", "", None)):
            _, asked = example(name)
            for question, answer in asked:
                if after is None and "special magic" in question:
                    again = question.removeprefix("What is the ").removesuffix("?")
                    written = f"{before}{question} The {again} is"
                elif question.startswith("Tell me"):
                    written = before + question + after
                else:
                    continue
                ran = subprocess.run([binary, "run", "-m", SHIPPED, "--raw", "--context",
                                      os.path.join(EXAMPLES, name + ".txt"), "--question", written, "--max-tokens",
                                      "12", "-q"], capture_output=True, text=True)
                self.assertEqual((ran.stderr, re.findall(r"\d+", ran.stdout)[:1]), ("", [answer]), question)


class Vocabulary(unittest.TestCase):
    def test_pieces_of_the_shipped_model_keep_their_numbers(self):
        pieces = export.read_fields(SHIPPED)["tokenizer.ggml.tokens"]
        own = [PROCESSOR.id_to_piece(i).replace("\u2581", " ") for i in range(len(pieces))]
        self.assertEqual([piece.replace("\u2581", " ") for piece in pieces], own)

    def test_extending_again_changes_nothing(self):
        with open(os.path.join(HERE, "vocabulary.model"), "rb") as file:
            model = file.read()
        self.assertEqual(vocabulary.extended(model), model)

    def test_a_wording_inside_a_piece_is_refused(self):
        with open(os.path.join(HERE, "vocabulary.model"), "rb") as file:
            model = file.read()
        with mock.patch.object(benchmarks, "phrases", lambda: ["pass key"]):
            with self.assertRaises(ValueError):
                vocabulary.extended(model)

    def test_new_rows_and_old_ones(self):
        torch.manual_seed(1)
        before = torch.randn(2048, 64)
        weights = {"embedding.weight": before.clone()}
        train.grow_vocabulary(weights, PROCESSOR)
        rows = weights["embedding.weight"]
        self.assertEqual(len(rows), PROCESSOR.vocab_size())
        self.assertTrue(torch.equal(rows[:2048], before))
        end = rows[PROCESSOR.piece_to_id(chunks.END)]
        for other in ("\n", "."):
            self.assertGreater(torch.cosine_similarity(end, before[PROCESSOR.encode(other)[0]], dim=0), 0.25)


class Fused(unittest.TestCase):
    def test_kernels_agree_with_plain_pytorch(self):
        if fused._library() is None:
            self.skipTest("no C compiler")
        torch.manual_seed(0)
        usable, linear = fused.usable, fused.linear
        try:
            for batch, length in ((3, 1), (2, 63), (2, 64), (3, 70), (1, 300)):
                model = small_model()
                ids = torch.randint(0, PROCESSOR.vocab_size(), (batch, length))
                positions = torch.arange(length)[None] + torch.randint(0, 50, (batch, 1))
                found = []
                for own in (True, False):
                    fused.usable = usable if own else (lambda x: False)
                    fused.linear = torch.nn.functional.linear
                    model.zero_grad()
                    logits = model(ids, positions)
                    logits.logsumexp(-1).sum().backward()
                    found.append((logits.detach(), [p.grad.clone() for p in model.parameters()]))
                self.assertLess((found[0][0] - found[1][0]).norm() / found[1][0].norm(), 1e-4)
                for a, b in zip(found[0][1], found[1][1]):
                    self.assertLess((a - b).norm(), 1e-3 * b.norm() + 1e-5)
        finally:
            fused.usable, fused.linear = usable, linear


class Start(unittest.TestCase):
    def test_the_untrained_model_answers_nothing(self):
        score = evaluate.generated(small_model(layers=4), ENCODER, "lines", 128, 20)
        self.assertEqual(score.right, 0)


class Scores(unittest.TestCase):
    def test_a_model_without_turns_is_asked_what_it_knows(self):
        model = models.Model(models.Shape(vocabulary=2048, layers=2))
        models.initialise(model)
        score = evaluate.generated(model, ENCODER, "lines", 128, 2)
        digits = [data.test_question("lines", ENCODER, 128, number)[1][:-1] for number in range(2)]
        self.assertEqual((score.questions, score.tokens), (2, sum(map(len, digits))))
        self.assertIsNone(evaluate.generated(model, ENCODER, "lines", 128, 2, chat=True))
        self.assertIsNone(evaluate.generated(model, ENCODER, "variables", 300, 1))


class Greedy(unittest.TestCase):
    def test_an_answer_stands_without_its_end_and_what_follows(self):
        said = iter([7, 8, 3, 9])

        def network(ids, positions, wanted):
            return torch.nn.functional.one_hot(torch.tensor([next(said)]), 10)

        self.assertEqual(evaluate.greedy(network, [1, 2], 6, end=3), [7, 8])
        said = iter([7, 8, 9])
        self.assertEqual(evaluate.greedy(network, [1, 2], 2, end=3), [7, 8])


class RulerFiles(unittest.TestCase):
    def test_references_are_the_values_of_the_context(self):
        for task in ruler_files.FILES:
            for record in ruler_files.records(ENCODER, task, 512, 3):
                self.assertTrue(record["outputs"], task)
                for value in record["outputs"]:
                    self.assertRegex(value, r"^[\w-]+$", task)
                    self.assertIn(value, record["input"], task)
                self.assertEqual(len(set(record["outputs"])), len(record["outputs"]), task)
        self.assertEqual(ruler_files.references("common", "1. a 2. b 10. c"), ["a", "b", "c"])
        self.assertEqual(ruler_files.references("multivalue", " 1, 2, and 3"), ["1", "2", "3"])


class Steps(unittest.TestCase):
    def test_shares_of_tasks_by_name(self):
        self.assertEqual(train.mix_of("lines=2,facts=0.5"), {"lines": 2.0, "facts": 0.5})
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "'line' is no task"):
            train.mix_of("line=2")

    def test_an_answer_counts_as_the_root_of_its_length(self):
        weights = train.weights_of([False] * 5 + [True] * 4 + [False] + [True] * 9 + [False])
        self.assertEqual([w > 0 for w in weights], [False] * 5 + [True] * 4 + [False] + [True] * 9 + [False])
        self.assertAlmostEqual(sum(weights[:9]) / sum(weights[9:]), 2 / 3)
        many = train.weights_of([False, True] * 100)
        self.assertEqual((sum(many), sum(train.weights_of([False, True]))), (50.0, 4.0))

    def test_newton_schulz_is_nearly_orthogonal(self):
        torch.manual_seed(1)
        for rows, columns in ((48, 48), (32, 96), (96, 32)):
            matrix = torch.randn(rows, columns) + 3 * torch.eye(rows, columns) * rows ** 0.5
            values = torch.linalg.svdvals(train.newton_schulz(matrix).float())
            self.assertGreater(values.min(), 0.3)
            self.assertLess(values.max(), 1.4)

    def test_only_rows_seen_move(self):
        weight = torch.nn.Parameter(torch.ones(5, 3))
        optimizer = train.RowAdam(weight, 0.1)
        weight.grad = torch.ones(5, 3)
        optimizer.rows = torch.tensor([1, 4])
        optimizer.step()
        self.assertEqual((weight != 1).any(dim=1).tolist(), [False, True, False, False, True])


class Files(unittest.TestCase):
    def test_gguf_round_trip(self):
        model = small_model()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            for stored, tolerance in ((export.F16, 1e-3), (export.Q8_0, 1e-2)):
                export.write(path, model, PROCESSOR, stored)
                again = export.read(path)
                for a, b in zip(model.parameters(), again.parameters()):
                    self.assertLess((a - b).abs().max(), tolerance * a.abs().max())

    def test_q8_0_blocks(self):
        values = numpy.random.default_rng(1).normal(size=(4, 64)).astype(numpy.float32)
        values[0, :32] = 0
        again = export.dequantise_q8_0(export.quantise_q8_0(values)).reshape(4, 64)
        self.assertLess(numpy.abs(values - again).max(), numpy.abs(values).max() / 127)

    def test_checkpoint_in_files_of_at_most_16_mib(self):
        content = {"model": {"a": torch.randn(1 << 21), "b": torch.randn(3 << 20)}, "state": {"step": 3, "f": [1.5]}}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "c.pt")
            for change, tolerance, count in ((lambda c: c, 0, 2), (checkpoint.small, 0.01, 1)):
                checkpoint.save(path, change(content), split=True)
                sizes = [os.path.getsize(name) for name in checkpoint.parts(path)]
                self.assertEqual(sorted(os.listdir(folder)), [f"c.pt.{i:02}" for i in range(count)])
                self.assertLessEqual(max(sizes), 16 << 20)
                again = checkpoint.load(path)
                self.assertEqual(again["state"], content["state"])
                for name, tensor in content["model"].items():
                    self.assertEqual(again["model"][name].dtype, torch.float32)
                    self.assertLessEqual(((again["model"][name] - tensor).abs() - tolerance * tensor.abs()).max(), 0)

    def test_checkpoint_of_the_project_goes_on(self):
        path = os.path.join(HERE, "checkpoint", "latest.pt")
        found = checkpoint.load(path)
        self.assertLessEqual(max(map(os.path.getsize, checkpoint.parts(path))), 16 << 20)
        self.assertEqual(found["shape"]["vocabulary"], PROCESSOR.vocab_size())
        model = models.Model(models.Shape(**found["shape"]))
        model.load_state_dict(found["model"])
        for optimizer, saved in zip(train.optimizers(model, 0.002), found["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
            self.assertTrue(optimizer.state_dict()["state"])

    def test_not_a_gguf(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(b"nothing")
            file.flush()
            with self.assertRaises(ValueError):
                export.read(file.name)


class Resuming(unittest.TestCase):
    def run_train(self, folder, *more, **options):
        command = [sys.executable, os.path.join(HERE, "train.py"), "--directory", folder, "--stages", "128", "--tokens",
                   "4e3", "--batch-tokens", "256", "--layers", "2", "--hidden", "64", "--solved", "2", *more]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)

    def test_a_run_goes_on_where_it_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            # Test questions take longest to make; training compares with none here.
            open(os.path.join(folder, f"held-out-{train.sources()}-4096"), "wb").close()
            latest = os.path.join(folder, "latest.pt")
            first = self.run_train(folder, "--minutes", "0.00001", "--split")
            self.assertEqual((first.communicate()[1], first.returncode), ("", 3))
            stopped = checkpoint.load(latest)
            self.assertLess(stopped["state"]["step"], 16)
            self.assertEqual(stopped["optimizers"][0]["state"][0]["momentum"].shape,
                             stopped["model"]["blocks.0.qkv.weight"].shape)
            second = self.run_train(folder, "--split")
            self.assertEqual((second.communicate()[1], second.returncode), ("", 0))
            done = checkpoint.load(latest)
            self.assertEqual((done["state"]["tokens"], done["state"]["step"]), (4096, 16))
            third = self.run_train(folder, "--split")
            self.assertEqual((third.communicate()[1], third.returncode), ("", 0))
            again = checkpoint.load(latest)
            self.assertEqual(again["state"]["step"], 16)
            for name, tensor in done["model"].items():
                self.assertTrue(torch.equal(tensor, again["model"][name]))

    def test_sigterm_saves(self):
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, f"held-out-{train.sources()}-4096"), "wb").close()
            running = self.run_train(folder, "--tokens", "1e9")
            curve = os.path.join(folder, "curve.csv")
            for _ in range(3000):
                if os.path.exists(curve) and os.path.getsize(curve):
                    break
                time.sleep(0.1)
            running.send_signal(signal.SIGTERM)
            self.assertEqual((running.communicate(timeout=60)[1], running.returncode), ("", 0))
            self.assertGreaterEqual(checkpoint.load(os.path.join(folder, "latest.pt"))["state"]["step"], 20)


if __name__ == "__main__":
    unittest.main()
