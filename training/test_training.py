"""Checks of the training code: python3 -m unittest test_training (a vocabulary and PyTorch are all it needs)."""

import os
import random
import tempfile
import unittest

import numpy
import sentencepiece
import torch

import data
import evaluate
import export
import fused
import model as models
import train

HERE = os.path.dirname(os.path.abspath(__file__))
PROCESSOR = sentencepiece.SentencePieceProcessor(model_file=os.path.join(HERE, "vocabulary.model"))
ENCODER = data.Encoder(PROCESSOR)


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
                whole = PROCESSOR.encode("".join(chunk for chunk, _ in parts))
                total += 1
                differ += whole != ENCODER.sample(parts)[0][1:]
        self.assertLessEqual(differ, total // 20)  # a rare junction, such as "is" before a made-up word in a-

    def test_longeval_lines_are_cut_alike_in_record_and_question(self):
        rng = random.Random(4)
        for _ in range(50):
            parts = data.lines(rng, ENCODER, 300, 0.8, questions=1)
            whole = PROCESSOR.encode("".join(chunk for chunk, _ in parts))
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

    def test_same_question_every_time_and_never_in_training(self):
        first = data.test_question("lines", ENCODER, 256, 7)
        self.assertEqual(first, data.test_question("lines", ENCODER, 256, 7))
        prompt, answer = first
        flags = [False] * len(prompt) + [True] * len(answer)
        forbidden = set(data.fingerprints(prompt + answer, flags))
        self.assertEqual(len(forbidden), 1)
        self.assertTrue(forbidden <= data.held_out(ENCODER, (256,), 8))

        class Once(random.Random):
            """A generator that starts by repeating the test question's seed."""

        rng = Once("test/lines/256/7")
        ids, learn = data.training_sample(rng, ENCODER, {"lines": 1}, 256, 0.5, forbidden)
        self.assertTrue(forbidden.isdisjoint(data.fingerprints(ids, learn)))

    def test_answers_follow_from_the_context(self):
        for number in range(20):
            prompt, answer = data.test_question("lines", ENCODER, 400, number)
            text, value = PROCESSOR.decode(prompt), PROCESSOR.decode(answer).strip()
            key = text.rsplit("in line ", 1)[1].split("?")[0]
            self.assertIn(f"line {key}: REGISTER_CONTENT is <{value}>\n", text)


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


class Steps(unittest.TestCase):
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

    def test_not_a_gguf(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(b"nothing")
            file.flush()
            with self.assertRaises(ValueError):
                export.read(file.name)


if __name__ == "__main__":
    unittest.main()
