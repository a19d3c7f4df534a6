#include "experiments/tasks/needles.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "temp_dir.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Tokenizer& tokenizer() {
  static const Tokenizer made(test::byte_vocabulary({}));
  return made;
}

std::size_t size_of(const Sample& s) { return tokenizer().encode(s.context + s.question).size(); }

TEST(Needles, StandWhereTheyShouldInPromptsOfTheLengthWanted) {
  const Haystack hay(tokenizer());
  for (std::size_t tokens : {700, 1500, 3000}) {
    for (double depth : {0.0, 0.3, 0.5, 1.0}) {
      const Sample s = needle_sample(hay, tokens, depth, 1, 7);
      EXPECT_LE(size_of(s), tokens);
      EXPECT_GT(size_of(s), tokens - 40);
      const std::string value = s.expected[0];
      EXPECT_EQ(value.size(), 7u);
      const std::size_t at = s.context.find("is: " + value + ".");
      ASSERT_NE(at, std::string::npos);
      const double head = 140, whole = static_cast<double>(s.context.size()) - head;
      EXPECT_NEAR((static_cast<double>(at) - head) / whole, depth, 90 / whole + 0.02);
      EXPECT_EQ(s.context.find(value), s.context.rfind(value)) << "the answer stands there once";
    }
  }
}

// Models repeat the question's sentence before the number. A word is a token or more, a digit one.
TEST(Needles, LeaveRoomForASentenceBeforeTheAnswer) {
  const Sample s = needle_sample(Haystack(tokenizer()), 900, 0.5, 1, 7);
  const std::string sentence = s.question.substr(s.question.rfind("? ") + 2);
  const auto words = static_cast<std::size_t>(std::ranges::count(sentence, ' ')) + 1;
  EXPECT_GE(s.max_tokens, 2 * words + s.expected[0].get<std::string>().size());
}

TEST(Needles, AreTheSameForTheSameSeedAndOthersForAnother) {
  const Haystack hay(tokenizer());
  EXPECT_EQ(needle_sample(hay, 900, 0.5, 3, 1).context, needle_sample(hay, 900, 0.5, 3, 1).context);
  std::set<std::string> answers;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    answers.insert(needle_sample(hay, 900, 0.5, 1, seed).expected.dump());
    answers.insert(passkey_sample(hay, 900, 0.5, seed).expected.dump());
    answers.insert(lines_sample(4, seed).expected.dump());
  }
  EXPECT_GE(answers.size(), 148u);
}

TEST(Lines, SeveralQuestionsShareARecord) {
  const std::vector<Sample> asked = lines_samples(5, 5, 3);
  ASSERT_EQ(asked.size(), 5u);
  const Sample one = lines_sample(5, 3);
  EXPECT_EQ(asked[0].id, one.id);
  EXPECT_EQ(asked[0].question, one.question);
  EXPECT_EQ(asked[0].expected, one.expected);
  std::set<std::string> ids, questions;
  for (const Sample& sample : asked) {
    EXPECT_EQ(sample.context, one.context);
    ids.insert(sample.id);
    questions.insert(sample.question);
    const std::string key =
        sample.question.substr(sample.question.find("line ") + 5,
                               sample.question.find('?') - sample.question.find("line ") - 5);
    EXPECT_THAT(one.context, HasSubstr("line " + key + ": REGISTER_CONTENT is <" +
                                       sample.expected.dump() + ">"));
  }
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(questions.size(), 5u);
  EXPECT_THAT(error_of([&] { lines_samples(5, 6, 3); }), HasSubstr("6 questions about 5 lines"));
}

TEST(Needles, SeveralHaveDifferentKeys) {
  const Sample s = needle_sample(Haystack(tokenizer()), 3000, 0.5, 12, 3);
  std::set<std::string> keys;
  const std::string before = "One of the special magic numbers for ";
  for (std::size_t at = 0; (at = s.context.find(before, at)) != std::string::npos; ++at) {
    keys.insert(s.context.substr(at, s.context.find(" is:", at) - at));
  }
  EXPECT_EQ(keys.size(), 12u);
}

TEST(Needles, AHaystackOfFilesIsCutAtSentences) {
  const TempDir dir;
  write_text(dir / "b.txt", "Third one! Is it? Version 2.5 of it.\nA line without an end");
  write_text(dir / "a.txt", "  First.  Second, longer.\n\n");
  write_text(dir / "c.md", "not read.");
  const Haystack hay(tokenizer(), dir.path());
  const std::string text = hay.hide(2000, {}, {}, 1);
  for (const char* sentence : {"First.", "Second, longer.", "Third one!", "Is it?",
                               "Version 2.5 of it.", "A line without an end"}) {
    EXPECT_THAT(text, HasSubstr(sentence));
  }
  EXPECT_EQ(text.find("not read"), std::string::npos);
  EXPECT_THAT(error_of([&] { Haystack(tokenizer(), dir / "none.txt"); }), HasSubstr("none.txt"));
  write_text(dir / "empty.txt", " \n");
  EXPECT_THAT(error_of([&] { Haystack(tokenizer(), dir / "empty.txt"); }), HasSubstr("no text"));
  // Sentences of no tokens would never fill a text.
  const Tokenizer words(parse_tokenizer_json(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["\u2581", -1]]},
          "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": true}]}})",
      "words"));
  ASSERT_EQ(words.encode(" \u2581", {.add_special = false}).size(), 0u);
  write_text(dir / "empty.txt", "\u2581\n\u2581\n");
  EXPECT_THAT(error_of([&] { Haystack(words, dir / "empty.txt"); }),
              HasSubstr("words: the tokenizer makes no tokens"));
  const TempDir empty;
  EXPECT_THAT(error_of([&] { Haystack(tokenizer(), empty.path()); }), HasSubstr(".txt files"));
}

/// Its rules of normalisation make nothing of each letter, mark and blank.
Tokenizer deaf_tokenizer() {
  std::vector<std::uint32_t> units(1024);
  units[0] = 256 << 10;
  units[256] = 0xff;
  for (std::uint32_t c = ' '; c < 127; ++c) {
    units[256 ^ c] = c | 1 << 8 | (256 ^ c ^ 512) << 10;
  }
  units[512] = 1u << 31;
  const auto size = static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t));
  SentencePieceParts parts;
  parts.pieces = {"<unk>", "\u2581", "a"};
  parts.scores = {0, -2, -3};
  parts.types = {TokenType::unknown, TokenType::normal, TokenType::normal};
  parts.add_space_prefix = false;
  parts.character_map.assign(reinterpret_cast<const char*>(&size), sizeof(size));
  parts.character_map.append(reinterpret_cast<const char*>(units.data()), size).push_back('\0');
  const std::string model = serialize(parts);
  Vocabulary vocabulary = SentencePieceModel(model, "deaf.model").vocabulary();
  vocabulary.kind = Vocabulary::Kind::library;
  vocabulary.sentencepiece_model = model;
  vocabulary.source = "deaf.model";
  return Tokenizer(std::move(vocabulary));
}

TEST(Needles, ATokenizerThatMakesNoTokensOfSentencesIsNamed) {
  const Tokenizer deaf = deaf_tokenizer();
  ASSERT_EQ(deaf.encode("The grass is green.", {.add_special = false}).size(), 0u);
  EXPECT_THAT(error_of([&] { Haystack hay(deaf); }),
              StartsWith("deaf.model: the tokenizer makes no"));
  const TempDir dir;
  write_text(dir / "hay.txt", "Some text.");
  EXPECT_THAT(error_of([&] { Haystack(deaf, dir / "hay.txt"); }), StartsWith("deaf.model: "));
}

TEST(Needles, TooFewTokensAreNamed) {
  const Haystack hay(tokenizer());
  EXPECT_THAT(error_of([&] { needle_sample(hay, 20, 0.5, 1, 1); }), HasSubstr("too few"));
  EXPECT_THAT(error_of([&] { passkey_sample(hay, 20, 0.5, 1); }), HasSubstr("too few"));
  EXPECT_THAT(error_of([&] { needle_sample(hay, 900, 0.5, 500, 1); }), HasSubstr("too few"));
}

TEST(Lines, AskForOneLineOfTheRecord) {
  const Sample s = lines_sample(30, 4);
  EXPECT_THAT(s.context, StartsWith("Below is a record of lines"));
  const std::size_t begin = s.question.find("in line ") + 8;
  const std::string key = s.question.substr(begin, s.question.find('?') - begin);
  const std::size_t line = s.context.find("line " + key + ": REGISTER_CONTENT is <");
  ASSERT_NE(line, std::string::npos);
  EXPECT_EQ(std::stoull(s.context.substr(s.context.find('<', line + key.size()) + 1)),
            s.expected.get<std::size_t>());
  EXPECT_EQ(std::ranges::count(s.context, '<'), 30 + 4);  // four in the header
}

}  // namespace
}  // namespace ballast
