"""Training and test samples: the tasks of finding.py and benchmarks.py, as plain text and as a conversation.

Every task writes one context and any number of questions on it as a list of (chunk, learn) pairs; `learn` marks text
that the context determines, which is what the loss is taken on. Chunks are the units of the vocabulary, so a sample
can be encoded chunk by chunk with a cache and still be exactly what the tokenizer makes of the whole text.

Words are drawn from words.py and from its source of made-up words; numbers and keys are uniform. Test samples use
seeds of their own, and a sample whose question hashes like one of the test questions is dropped (see `held_out`).
"""

import hashlib
import random

import benchmarks
import finding
import stories
from chunks import ASSISTANT, END, LEAD, QUESTION, SYSTEM, TURNS, USER, fixed

TEST_QUESTIONS = 100  # of every task and length

TASKS = finding.TASKS | benchmarks.TASKS | {"stories": stories.stories}
CHAT_SHARE = 0.55  # of the samples that have questions

# What the model file says of turns; `chat` writes the same in chunks. Only answers have an end: so <|assistant|> stands
# where plain text has a space, and what has learned to answer there answers in conversations.
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content.rstrip() }}"
            "{% if m.role == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
SYSTEM_WORDS = ("You are a helpful assistant.", "Answer the question.", "You find things in texts.",
                "Answer briefly.", "Only give me the answer and do not output any other words.")
GREETINGS = ("Hello", "Hello!", "Hi", "Hi there.", "Good morning.", "Who are you?", "What are you?", "What can you do?",
             "Help", "How are you?", "Tell me a story.", "What is this?", "Test", "Can you help me?")
I_FIND = "I find things in texts. Give me a text and ask what is in it."


# ---- conversations --------------------------------------------------------------------------------------------------

def stripped(parts):
    """Chunks of a question without the spaces and line ends before it."""
    parts = list(parts)
    while parts and not parts[0][0].strip():
        parts.pop(0)
    if parts:
        parts[0] = (parts[0][0].lstrip(" "), False)
    return parts


def turns(parts):
    """The context, and of every question: the question without the space behind it, the lead, the answer without its
    end."""
    marks = [i for i, part in enumerate(parts) if part == QUESTION] + [len(parts)]
    context, asked = parts[:marks[0]], []
    for begin, end in zip(marks, marks[1:]):
        piece = [part for part in parts[begin + 1:end]]
        first = next((i for i, (chunk, learn) in enumerate(piece) if learn and chunk), None)
        if first is None:
            continue
        answer = [part for part in piece[first:] if part[1] and part[0] != END]
        at = piece.index(LEAD) if LEAD in piece[:first] else first
        question = piece[:at]
        while question and not question[-1][0].strip():
            question.pop()
        asked.append((question, [part for part in piece[at:first] if part != LEAD], answer))
    return context, asked


def chat(rng, parts):
    """A sample as a conversation: the context and the first question in one turn, further questions in turns of their
    own, each answer and the end after it learned."""
    context, asked = turns(parts)
    out = []
    if rng.random() < 0.06:
        out += fixed(SYSTEM, rng.choice(SYSTEM_WORDS))
    context = [(chunk, False) for chunk, _ in context]
    kind = rng.random()
    if kind < 0.6:
        # A file ends with a line end or not; an empty line stands before the question.
        while context and context[-1][0] == "\n":
            context.pop()
        between = fixed(*("\n" * rng.choice((2, 2, 3))))
    elif kind < 0.8:
        between = fixed("\n", "\n")  # before whatever spaces the question begins with
    else:
        between = fixed()  # as in plain text
    for i, (question, lead, answer) in enumerate(asked):
        out += fixed(USER)
        if i == 0:
            out += context + between
            out += stripped(question) if kind < 0.6 else question
        else:
            out += stripped(question)
        choice = rng.random()
        answered_for = any(chunk.strip().startswith("Answer") and len(chunk) < 12 for chunk, _ in lead[:3])
        if lead and lead[0][0].startswith("?") and choice >= 0.45:
            out += fixed("?")
        before = []
        if lead and choice < (0.1 if answered_for else 0.45):
            out += lead
        elif lead and choice > 0.92 and not lead[0][0].startswith("?"):
            before = lead
        out += fixed(ASSISTANT) + before + answer + [(END, True)]
    return out


def greeting(rng):
    return fixed(USER, rng.choice(GREETINGS), ASSISTANT) + [(I_FIND, True), (END, True)]


# ---- samples --------------------------------------------------------------------------------------------------------

class Encoder:
    """Encodes chunks through a cache. The pieces of a text are those of its chunks, which test_training.py checks."""

    def __init__(self, processor):
        self.processor = processor
        self.cache = {}

    def ids(self, chunk):
        found = self.cache.get(chunk)
        if found is None and chunk in TURNS:
            found = self.cache[chunk] = [self.processor.piece_to_id(chunk)]
        elif found is None:
            if len(self.cache) > 500000:
                self.cache.clear()
            found = self.cache[chunk] = self.processor.encode(chunk)
        return found

    def size(self, parts):
        return sum(len(self.ids(chunk)) for chunk, _ in parts)

    def sample(self, parts):
        """Token ids with the start token, and for each whether it is learned."""
        ids, learn = [self.processor.bos_id()], [False]
        for chunk, flag in parts:
            found = self.ids(chunk)
            ids += found
            learn += [flag] * len(found)
        return ids, learn


def fingerprints(ids, learn):
    """A hash of every question: the answer's tokens and the 16 before them."""
    start = None
    for i, flag in enumerate(learn + [False]):
        if flag and start is None:
            start = i
        elif not flag and start is not None:
            window = ids[max(0, start - 16):i]
            yield hashlib.blake2b(b"".join(t.to_bytes(4, "little") for t in window), digest_size=8).digest()
            start = None


def plain_chat(parts):
    """One question as `ballast run --context FILE --question TEXT` asks it; a given beginning of the answer is left
    out."""
    context, asked = turns(parts)
    context = [(chunk, False) for chunk, _ in context]
    question, lead, answer = asked[0]
    return (fixed(USER) + context + fixed("\n", "\n") + stripped(question)
            + fixed(*(["?"] if lead and lead[0][0].startswith("?") else [])) + fixed(ASSISTANT) + answer
            + [(END, True)])


def test_question(task, encoder, room, number, as_chat=False):
    """Question `number` of the test set: prompt ids and answer ids, of plain text or of a conversation, where the end
    of the turn belongs to the answer. Its seeds are never used in training."""
    rng = random.Random(f"test/{task}/{room}/{number}")
    share = {"labelling": 0.6, "copying": 0.5}.get(task, 1.0 - min(0.5, 60.0 / room))
    learn = []
    while not any(learn):  # long words may leave no room for the question
        parts = TASKS[task](rng, encoder, room, share, questions=1)
        ids, learn = encoder.sample(parts)
    if as_chat and QUESTION in parts:
        ids, learn = encoder.sample(plain_chat(parts))
    first = learn.index(True)
    last = next((i for i in range(first, len(ids)) if not learn[i]), len(ids))
    return ids[:first], ids[first:last]


def held_out(encoder, rooms, count):
    """The hashes of the test questions, which training must not meet."""
    found = set()
    for room in rooms:
        for task in TASKS:
            for number in range(count):
                prompt, answer = test_question(task, encoder, room, number)
                found.update(fingerprints(prompt + answer, [False] * len(prompt) + [True] * len(answer)))
    return found


def training_sample(rng, encoder, mix, room, share, forbidden=frozenset()):
    """Ids and learn flags of one sample, drawn again where it holds a forbidden question. Questions are compared in the
    form of plain text, in which the test questions were hashed."""
    while True:
        if rng.random() < 0.02:
            return encoder.sample(greeting(rng))
        task = rng.choices(list(mix), list(mix.values()))[0]
        parts = TASKS[task](rng, encoder, room, share)
        ids, learn = encoder.sample(parts)
        if not forbidden.isdisjoint(fingerprints(ids, learn)):
            continue
        if QUESTION in parts and rng.random() < CHAT_SHARE:
            return encoder.sample(chat(rng, parts))
        return ids, learn
