"""Trains the SentencePiece vocabulary on chunks of generated text.

The trainer is given chunks (words, digits, whole phrases of the task wordings) rather than sentences, so no piece
crosses from one chunk into the next: a word is cut the same way wherever it stands, digits stay single, and a long
fixed phrase becomes one piece. Everything else falls back to bytes.

Turns and the wordings of benchmarks.py are appended as pieces of their own, which stand whole wherever a text holds
them, so that the numbers of all other pieces stay.

    python3 vocabulary.py --out vocabulary.model
    python3 vocabulary.py --extend vocabulary.model --out vocabulary.model
"""

import argparse
import collections
import random
import struct
import tempfile

import sentencepiece

import benchmarks
import chunks
import finding
import words

SIZE = 2048


def chunk_counts(rng):
    counts = collections.Counter()
    # Words stand alone (after a hyphen or a quote) and after a space; the known ones should become whole pieces.
    for word in words.nouns:
        counts[word] += 220
        counts[" " + word] += 120
    for word in words.adjectives:
        counts[word] += 60
        counts[" " + word] += 260
    for word in words.verbs + words.adverbs + words.places:
        counts[" " + word] += 200
    for _ in range(60000):
        word = words.made_up_word(rng)
        counts[word] += 1
        counts[" " + word] += 2
    for phrase in finding.phrases():
        counts[phrase] += 400
    for char in map(chr, range(33, 127)):
        if not char.isdigit():
            counts[char] += 300
    for digit in "0123456789":
        counts[digit] += 20000
    for letter in "abcdef":
        counts[letter] += 2000
    return counts


CONTROL, USER_DEFINED = 3, 4  # types of SentencePiece's ModelProto


def extended(model):
    """A serialised vocabulary with the turns and the wordings of benchmarks.py at its end: fields of the protocol
    buffer may be appended."""
    there = sentencepiece.SentencePieceProcessor(model_proto=model)
    known = {there.id_to_piece(i) for i in range(there.vocab_size())}
    pieces = [(turn, CONTROL) for turn in chunks.TURNS]
    pieces += [(phrase.replace(" ", "\u2581"), USER_DEFINED) for phrase in dict.fromkeys(benchmarks.phrases())]
    for piece, kind in pieces:
        if piece in known:
            continue
        inside = [other for other in known if piece in other]
        if inside:
            raise ValueError(f"'{piece}' stands in the piece '{inside[0]}', which texts would no longer be cut into")
        raw = piece.encode("utf-8")
        body = b"\x0a" + varint(len(raw)) + raw + b"\x15" + struct.pack("<f", 0.0) + b"\x18" + bytes([kind])
        model += b"\x0a" + varint(len(body)) + body
    return model


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="vocabulary.model")
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--extend", metavar="MODEL", help="append the new pieces to this vocabulary; train none")
    arguments = parser.parse_args()
    if arguments.extend:
        with open(arguments.extend, "rb") as file:
            model = file.read()
        with open(arguments.out, "wb") as file:
            file.write(extended(model))
        return
    counts = chunk_counts(random.Random(1))
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for chunk, count in sorted(counts.items()):
            file.write(f"{chunk}\t{count}\n")
        file.flush()
        sentencepiece.SentencePieceTrainer.train(
            input=file.name, input_format="tsv", model_prefix=arguments.out.removesuffix(".model"),
            model_type="bpe", vocab_size=arguments.size, byte_fallback=True, split_digits=True,
            split_by_whitespace=False, split_by_unicode_script=False, split_by_number=False,
            treat_whitespace_as_suffix=False, add_dummy_prefix=False, remove_extra_whitespaces=False,
            normalization_rule_name="identity", max_sentencepiece_length=200, character_coverage=1.0,
            unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=1, minloglevel=1)


if __name__ == "__main__":
    main()
