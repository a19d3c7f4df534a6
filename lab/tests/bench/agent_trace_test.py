"""The conversation that lab/bench/agent_trace.py makes."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import agent_trace  # noqa: E402


class AgentTrace(unittest.TestCase):
    def test_states_each_answer_in_its_turn(self):
        trace = agent_trace.make(24000)
        self.assertEqual((len(trace["tools"]), len(trace["questions"])), (10, 40))
        turns = []
        for message in trace["messages"]:
            if message["role"] == "user":
                turns.append("")
            if turns:
                turns[-1] += (message["content"] or "").lower().replace(",", "") + "\n"
        self.assertEqual(len(turns), 50)
        for question in trace["questions"]:
            for accept in question["accept"]:
                self.assertIn(accept, turns[question["turn"] - 1], question)

    def test_is_about_as_long_as_asked_and_always_the_same(self):
        letters = {}
        for tokens in (8000, 16000):
            made = agent_trace.make(tokens)
            self.assertEqual(made, agent_trace.make(tokens))
            letters[tokens] = len(json.dumps(made["messages"]))
        self.assertAlmostEqual((letters[16000] - letters[8000]) / 8000, agent_trace.LETTERS, delta=0.5)


if __name__ == "__main__":
    unittest.main()
