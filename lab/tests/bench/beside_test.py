"""What lab/bench/beside.py keeps of several runs, and how lab/bench/speed_page.py shows it."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import beside  # noqa: E402
import speed_page  # noqa: E402


def row(prompt_seconds, decode_seconds, engine="Ballast", batch=1):
    return {"engine": engine, "method": "exact", "prompt": 512, "batch": batch, "generated": 32,
            "prompt_seconds": prompt_seconds, "decode_seconds": decode_seconds}


class Beside(unittest.TestCase):
    def test_keeps_the_least_of_each_time(self):
        rows = []
        for kept in (row(2.0, 1.0), row(1.0, 1.5), row(3.0, 0.5, "llama.cpp"), row(2.0, 2.0, batch=4)):
            beside.keep(rows, kept)
        self.assertEqual(rows, [{**row(1.0, 1.0), "runs": 2}, {**row(3.0, 0.5, "llama.cpp"), "runs": 1},
                                {**row(2.0, 2.0, batch=4), "runs": 1}])

    def test_a_peer_that_is_faster_is_bold(self):
        self.assertEqual(speed_page.times(3.0, 2.0), "1.5×")
        self.assertEqual(speed_page.times(1.0, 2.0), "**0.50×**")
        self.assertEqual(speed_page.times(None, 2.0), "–")

    def test_a_first_token_includes_compression(self):
        self.assertEqual(speed_page.first({**row(2.0, 1.0), "compress_seconds": 0.5}), 2.5)


if __name__ == "__main__":
    unittest.main()
