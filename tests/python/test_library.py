"""ballast.Library with the model that Ballast ships."""
import os
import pathlib
import tempfile
import unittest

import ballast

SOURCE = os.environ["BALLAST_SOURCE"]
MODEL = os.path.join(SOURCE, "models", "ballast-mini.gguf")
RECORDS = os.path.join(SOURCE, "examples", "record.txt")


class Libraries(unittest.TestCase):
    def test_documents_are_added_asked_and_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            notes = pathlib.Path(folder, "notes")
            notes.mkdir()
            (notes / "sea.txt").write_text("Nobody saw the ship.")
            library = ballast.Library(ballast.Model(MODEL), pathlib.Path(folder, "library"))
            self.assertEqual(library.documents(), [])
            told = []
            added = library.add(RECORDS, notes, cache="1/2", progress=told.append)
            self.assertEqual(added["added"], ["record.txt", "sea.txt"])
            self.assertEqual(told, sorted(told))
            self.assertEqual(library.add(RECORDS, notes)["added"], [])
            self.assertEqual(str(library.ask("Xyzzy?")), "Not in the library.")
            answer = library.ask("What is the register content of line gaudy-dove?")
            self.assertTrue(answer.supported)
            self.assertIn("37211", answer.text)
            self.assertEqual(answer.citations[0]["document"], "record.txt")
            library.remove("sea.txt")
            self.assertEqual([one["name"] for one in library.documents()], ["record.txt"])
            with self.assertRaisesRegex(ballast.ArgumentError, "no document 'sea.txt'"):
                library.remove("sea.txt")


if __name__ == "__main__":
    unittest.main()
