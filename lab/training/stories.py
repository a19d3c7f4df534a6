"""Stories: prose of everyday words in which people, needles, a passkey, things done and things told stand together.

The other tasks hide one kind of fact in sentences of one shape. Here what is asked for stands among sentences of many
shapes, goes on after the fact, and a text holds several kinds of facts, each asked for in its own words.
"""

import benchmarks
import finding
import words
from chunks import ENDED, Filled, digits, distinct, fixed, noun, sentence, text_chunks, worded

# Past and base form.
DONE = [tuple(pair.split("/")) for pair in """
carried/carry painted/paint opened/open closed/close found/find lost/lose sold/sell bought/buy repaired/repair
hid/hide washed/wash folded/fold broke/break lifted/lift dropped/drop burned/burn built/build cleaned/clean
counted/count covered/cover drew/draw emptied/empty fetched/fetch filled/fill followed/follow forgot/forget gave/give
guarded/guard heard/hear held/hold kept/keep left/leave locked/lock mended/mend moved/move packed/pack planted/plant
pulled/pull pushed/push read/read sent/send served/serve shared/share showed/show stole/steal threw/throw tied/tie
touched/touch turned/turn used/use wanted/want watched/watch weighed/weigh wrapped/wrap wrote/write missed/miss
needed/need loved/love borrowed/borrow brought/bring chose/choose
""".split()]
DONE_BY_NOW = [pair for pair in DONE if pair[0].endswith(("ed", "ght", "nt", "ft", "lt", "ound", "eld"))]  # "has ..."
WENT = """
laughed slept waited sang stopped smiled shook walked ran slowed stood sat worked talked arrived rested stayed turned
drank ate cried hurried listened wondered dreamed coughed whistled returned fell climbed danced knocked
""".split()
WHO = """
clockmaker captain baker sisters boy girl woman man miller smith nurse doctor teacher farmer sailor widow stranger
mayor innkeeper fisherman hunter postman priest soldier child shepherd gardener cook painter grandmother uncle driver
""".split()
WHEN = ("That night", "By morning", "In the evening", "After a while", "Later", "Once", "In winter", "On Sundays",
        "At noon", "For years", "In the end", "Long ago", "That same week", "In spring", "Before dawn", "Every day",
        "At last", "Then", "Now and then", "When the rain stopped", "When it was dark", "As always", "Some say",
        "In those days", "On the third day", "While the others slept")
LINKS = (", and", ", but", ", so", ", for", ", since", " because", " while", " when", " before", " until", " and",
         ", where")
BEHIND = "in on at by near behind under across over along beside around through into toward above from".split()
DETERMINERS = "the a his her their this that one every another no the the the".split()
COUNTS = "two three four five six seven eight nine ten twelve twenty several many few".split()
MARKS = (".", ".", ".", ".", ".", ".", ".", "!", ";", ":")
TAILS = ("which nobody knew", "as everyone knows", "though few remember it", "or so they say", "and that was that",
         "as the letter said", "which is true", "and nothing else", "like the others", "so it was written",
         "whatever people say", "as before", "and rightly so", "for a long time", "and has never told anyone")

# What things have, asked for as "What is the NAME of the THING?"
HAS = """
password code price name number colour age height date address size weight owner title length width depth capital
author year key secret distance speed answer reason nickname street motto symbol level combination account label model
""".split()


def thing(rng):
    """A noun phrase, starting with a space."""
    kind = rng.random()
    if kind < 0.12:
        return " " + rng.choice(COUNTS) + " " + rng.choice(words.nouns) + "s"
    described = " " + (rng.choice(words.adjectives) if rng.random() < 0.8 else words.made_up_word(rng))
    return " " + rng.choice(DETERMINERS) + (described if rng.random() < 0.35 else "") + " " + rng.choice(words.nouns)


def somebody(rng, people=()):
    kind = rng.random()
    if people and kind < 0.15:
        return " " + rng.choice(people)
    if kind < 0.45:
        return rng.choice((" she", " he", " they", " it", " nobody", " everyone", " the others", " we", " I"))
    if kind < 0.8:
        return " the" + (" " + rng.choice(words.adjectives) if rng.random() < 0.2 else "") + " " + rng.choice(WHO)
    return thing(rng)


def clause(rng, people=()):
    text = somebody(rng, people)
    kind = rng.random()
    if kind < 0.45:
        text += " " + rng.choice(("", "", "", "had ", "never ", "often ")) + rng.choice(DONE)[0] + thing(rng)
    elif kind < 0.65:
        text += " " + rng.choice(WENT)
    else:
        text += " was" + rng.choice(("", "", " not", " still", " already")) + " " + rng.choice(words.adjectives)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        text += " " + rng.choice(BEHIND) + thing(rng)
    if rng.random() < 0.1:
        text += " at " + str(rng.randint(1, 12))
    elif rng.random() < 0.05:
        text += " in " + str(rng.randint(2, 99)) + " " + rng.choice(("days", "steps", "years", "rooms", "boats"))
    return text

# What else is told of a thing or of somebody: a sentence, and questions on it. {n}: the thing; {w}: somebody; {v}: the
# answer, one of the kinds of simple_value().
TOLD = (
    ("{n} {is} {v}", "place", ("Where {is} {n}?",)),
    ("{n} is called {v}", "name", ("What is {n} called?", "What is the name of {n}?", "How is {n} called?")),
    ("{n} costs {v}", "cost", ("What does {n} cost?", "How much does {n} cost?", "What is the price of {n}?")),
    ("{w} is the {r} of {n}", "who", ("Who is the {r} of {n}?",)),
    ("{w} has {d} {v}", "thing", ("What has {w} {d}?",)),
    ("{w} wants to {b} {v}", "thing", ("What does {w} want to {b}?",)),
    ("{w} has {v} {s}", "count", ("How many {s} does {w} have?", "How many {s} has {w}?")),
    ("{n} {l} {v}", "time", ("When does {n} {L}?",)),
    ("{w} is {v} years old", "years", ("How old is {w}?", "What is the age of {w}?")),
    ("{w} went to {v}", "town", ("Where did {w} go?", "To which town did {w} go?")),
)
ROLES = "owner mayor teacher chair secretary author king queen captain keeper doctor painter builder head guest".split()
PLACES_OF = "is/is lies/is stands/is hangs/is was/was".split()
LEAVES = "begins/begin opens/open leaves/leave arrives/arrive closes/close ends/end starts/start".split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
UNITS = "crowns euros coins dollars pounds pence marks cents".split()


def simple_value(rng, kind, people, towns):
    if kind == "place":
        return rng.choice(BEHIND) + thing(rng)
    if kind in ("name", "town"):
        return rng.choice(towns) if kind == "town" or rng.random() < 0.3 else words.made_up_word(rng).capitalize()
    if kind == "cost":
        return digits(rng, 1, 4) + " " + rng.choice(UNITS)
    if kind == "who":
        return rng.choice(people)
    if kind == "count":
        return rng.choice(COUNTS)
    if kind == "years":
        return str(rng.randint(3, 99))
    if kind == "time":
        return rng.choice((f"at {rng.randint(1, 12)}", f"on {rng.choice(DAYS)}", f"in {rng.choice(MONTHS)}",
                           f"on {rng.randint(1, 31)} {rng.choice(MONTHS)}"))
    described = rng.choice(words.adjectives) + " " if rng.random() < 0.4 else ""
    return rng.choice(("the ", "his ", "her ", "an " if (described or "x")[0] in "aeiou" else "a ")) + described + noun(
        rng)


def tell_simply(rng, taken, people, towns):
    """One of TOLD, as tell() does."""
    text, kind, questions = rng.choice(TOLD)
    what = "the " + (rng.choice(words.adjectives) + " " if rng.random() < 0.3 else "") + noun(rng)
    who = rng.choice(people) if rng.random() < 0.6 else "the " + rng.choice(WHO)
    value = simple_value(rng, kind, people, towns)
    done, base = rng.choice(DONE_BY_NOW)
    stands, is_ = rng.choice(PLACES_OF).split("/")
    leaves, leave = rng.choice(LEAVES).split("/")
    known = (text, what if "{n}" in text else who, base if "{d}" in text or "{b}" in text else "")
    if known in taken or (kind == "who" and value == who):
        return None
    taken.add(known)
    fill = {"n": what, "w": value if kind == "who" else who, "v": value, "r": rng.choice(ROLES), "d": done, "b": base,
            "s": rng.choice(words.nouns) + "s", "l": leaves, "L": leave}
    ask = " " + rng.choice(questions).format(**fill, **{"is": is_})
    before, _, after = text.replace("{w}", "{v}" if kind == "who" else "{w}").partition("{v}")
    before, after = (part.format(**fill, **{"is": stands}) for part in (before, after))
    start = told(" " + before.rstrip(" ")) if before else []
    chunks = text_chunks(" " + value)
    if not start:
        chunks = [" " + value[0].upper() + value[1:]]  # whoever begins the sentence
    return (start + fixed(*chunks) + (fixed(after) if after else []) + going_on(rng, people),
            [(ask, (), answered(value))])


def told(text):
    """A sentence that starts with a space, with a capital; one chunk, for some pieces reach over a space."""
    return fixed(" " + text[1].upper() + text[2:])


def line(rng, people=()):
    """One sentence of a story."""
    if rng.random() < 0.12:
        return sentence(rng)
    text = clause(rng, people)
    if rng.random() < 0.3:
        text = " " + rng.choice(WHEN) + rng.choice((",", "")) + text
    if rng.random() < 0.45:
        text += rng.choice(LINKS) + clause(rng, people)
    if rng.random() < 0.12:
        text += ", " + rng.choice(TAILS)
    return told(text + rng.choice(MARKS))


def going_on(rng, people):
    """What may follow a fact in its sentence."""
    kind = rng.random()
    if kind < 0.5:
        return fixed(".")
    return fixed(rng.choice(LINKS[:8]) + clause(rng, people) + "." if kind < 0.9 else ", " + rng.choice(TAILS) + ".")


def value_of(rng):
    """What a thing has: a number, a word or several."""
    kind = rng.random()
    if kind < 0.4:
        return digits(rng, 1, 7)
    if kind < 0.6:
        return noun(rng)
    if kind < 0.75:
        return words.made_up_word(rng).capitalize()
    if kind < 0.9:
        return rng.choice(words.adjectives) + rng.choice((" ", "-")) + noun(rng)
    return rng.choice(benchmarks.COLOURS)


def answered(text):
    return [(chunk, True) for chunk in text_chunks(" " + text)]


def tell(rng, kind, taken, people, towns):
    """A fact nobody has told yet: its sentence's chunks, and ways to ask: (wording with {}, key, answer chunks)."""
    if kind == "needle":
        what, make_key, make_value = finding.special(rng)
        key, value = make_key(rng), make_value(rng)
        if key in taken:
            return None
        taken.add(key)
        wordings = finding.NEEDLE_QUESTIONS + (f" What is the special magic [] for{{}}{finding.MENTIONED}?",) * 3
        return (fixed(" ") + finding.needle(what, key, value),
                [(rng.choice(wordings).replace("[]", what[:-1]), text_chunks(" " + key),
                  [(chunk, True) for chunk in text_chunks(" " + value)])])
    if kind == "passkey":
        if "passkey" in taken:
            return None
        taken.add("passkey")
        key = digits(rng, 5, 5) if rng.random() < 0.7 else digits(rng, 4, 8)
        return (fixed(" " + finding.PASSKEY, " ", *key, finding.REMEMBER, " ", *key, finding.PASSKEY_AGAIN),
                [(rng.choice(finding.PASSKEY_QUESTIONS), (), [(" ", True)] + [(digit, True) for digit in key])])
    if kind == "person":
        who = rng.choice(people)
        text, asks = [], []
        for fact in rng.sample(list(benchmarks.FACTS), rng.choice((1, 1, 2, 3))):
            if (who, fact) in taken:
                continue
            called = who
            if who in taken and rng.random() < 0.5:  # told of before: the first name will do, or a word just after
                called = rng.choice((who.split()[0], "She", "He")) if text else who.split()[0]
            taken.update(((who, fact), who))
            verb, sort, questions = benchmarks.FACTS[fact]
            answer = benchmarks.fact_answer(rng, sort, [p for p in people if p != who] or people, towns)
            text += fixed(*benchmarks.word_chunks(" " + called), verb, *answer) + going_on(rng, people)
            asks.append((" " + rng.choice(questions), benchmarks.word_chunks(" " + who),
                         [(chunk, True) for chunk in answer]))
        return (text, asks) if text else None
    if kind == "done":
        past, base = rng.choice(DONE)
        who = rng.choice(people) if rng.random() < 0.5 else "the " + rng.choice(WHO)
        what = (rng.choice(words.adjectives) + " " if rng.random() < 0.4 else "") + noun(rng)
        what = rng.choice(("the ", "an " if what[0] in "aeiou" else "a ")) + what
        if (who, past) in taken or (past, what) in taken:
            return None
        taken.update(((who, past), (past, what)))
        ask = ((f" What did {who} {base}?", (), answered(what)) if rng.random() < 0.5 else
               (f" Who {past} the {what.split(' ', 1)[1]}?", (), answered(who)))
        return told(f" {who} {past} {what}") + going_on(rng, people), [ask]
    if kind == "simple":
        return tell_simply(rng, taken, people, towns)
    has = rng.choice(HAS) if rng.random() < 0.7 else noun(rng)
    of = rng.choice(people) if rng.random() < 0.2 else "the " + (
        rng.choice(words.adjectives) + " " if rng.random() < 0.3 else "") + noun(rng)
    if (has, of) in taken:
        return None
    taken.add((has, of))
    value = value_of(rng)
    wordings = (f" What is the {has} of {of}?", f" Give me the {has} of {of}.", f" Which {has} has {of}?",
                f" Tell me the {has} of {of}.", f" I need the {has} of {of}.")
    return (told(f" the {has} of {of} is") + fixed(*text_chunks(" " + value)) + going_on(rng, people),
            [(wordings[0] if rng.random() < 0.6 else rng.choice(wordings), (), answered(value))])


KINDS = {"person": 5, "needle": 2, "passkey": 2, "done": 4, "has": 4, "simple": 6}


def stories(rng, encoder, room, share, questions=None):
    """A story with facts of several kinds, and questions on them."""
    out = Filled(encoder)
    if rng.random() < 0.15:
        out.add(fixed(rng.choice((benchmarks.READ_BRIEFLY, benchmarks.ONLY_ANSWER[1:])), ".", "\n", "\n"))
    limit = share * room
    towns = distinct(benchmarks.name, rng.randint(2, 10), rng)
    people = distinct(benchmarks.person, max(1, min(30, int(limit / 60))), rng)
    density = rng.uniform(0.1, 0.6) if room > 300 else 0.7
    taken, asks = set(), []
    start = True
    while out.size < limit or not asks:
        fact = rng.random() < density and tell(rng, rng.choices(list(KINDS), list(KINDS.values()))[0], taken, people,
                                               towns)
        if fact:
            asks += fact[1]
        text = fact[0] if fact else line(rng, people)
        if start:  # no space at the beginning of a paragraph
            text = fixed(text[0][0].removeprefix(" ")) + text[1:]
        out.add(text)
        start = rng.random() < 0.12
        if start:
            out.add(fixed("\n") + (fixed("\n") if rng.random() < 0.7 else fixed()))
    out.add(fixed("\n"))
    rng.shuffle(asks)
    for wording, key, answer in asks[:questions]:
        if out.size > room:
            break
        out.add(worded(wording, fixed(*key)) + answer + ENDED)
    return out.parts
