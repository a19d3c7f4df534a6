"""The scripts of examples/python."""
import csv
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["BALLAST_SOURCE"]


class Examples(unittest.TestCase):
    def test_compare(self):
        script = os.path.join(SOURCE, "examples", "python", "compare.py")
        model = os.path.join(SOURCE, "models", "ballast-mini.gguf")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, script, model], cwd=folder, check=True,
                           capture_output=True, text=True)
            with open(os.path.join(folder, "compare.csv")) as file:
                rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 2 * 6 * 3)
        # Equal bytes: each method within its share of 2000 entries of 2 * 64 bf16 numbers.
        for row in rows[:18]:
            self.assertLessEqual(int(row["bytes"]), float(row["share"]) * 2000 * 256)
            self.assertLess(float(row["result"]), 2)


if __name__ == "__main__":
    unittest.main()
