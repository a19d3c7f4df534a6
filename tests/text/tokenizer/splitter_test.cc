#include "text/tokenizer/splitter.h"

#include <random>

#include "ballast/error.h"
#include "base/interruption.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer/pretokenizers.h"

namespace ballast {
namespace {

using Words = std::vector<std::string>;

Words split(const std::vector<std::string>& patterns, std::string_view text) {
  Words words;
  Splitter(patterns, "test").split(text, Splitter::Deadline(text.size()), [&](std::string_view w) {
    words.emplace_back(w);
  });
  return words;
}

Words split_as(const char* name, std::string_view text) {
  return split(find_pre_tokenizer(name, "test").splits, text);
}

TEST(Splitter, MatchesAndWhatLiesBetweenBecomeWords) {
  EXPECT_EQ(split({"b+"}, "aabbcab"), (Words{"aa", "bb", "ca", "b"}));
  EXPECT_EQ(split({"b+", "a"}, "aabbca"), (Words{"a", "a", "bb", "c", "a"}));
  EXPECT_EQ(split({"(?=b)"}, "abab"), (Words{"a", "ba", "b"}));
  EXPECT_EQ(split({"x"}, ""), Words{});
  EXPECT_EQ(split({}, "one word"), Words{"one word"});
}

// The expected words follow from reading the expressions.
TEST(Splitter, FamiliesCutTheirOwnWay) {
  EXPECT_EQ(split_as("gpt-2", "I'll  go123!\n\n x"),
            (Words{"I", "'ll", " ", " go", "123", "!", "\n\n", " x"}));
  EXPECT_EQ(split_as("llama3", "I'LL go 12345!\n\n x"),
            (Words{"I", "'LL", " go", " ", "123", "45", "!\n\n", " x"}));
  EXPECT_EQ(split_as("qwen2", "a 123(b)"), (Words{"a", " ", "1", "2", "3", "(b", ")"}));
  EXPECT_EQ(split_as("qwen2", "e\u0301a 1"), (Words{"e", "\u0301a", " ", "1"}));
  EXPECT_EQ(split_as("qwen35", "e\u0301a 1"), (Words{"e\u0301a", " ", "1"}));
  EXPECT_EQ(split_as("seed-coder", "a 12!\n\nx"), (Words{"a", " ", "1", "2", "!", "\n\n", "x"}));
  EXPECT_EQ(split_as("tekken", "helloWorld ABCdef 12"),
            (Words{"hello", "World", " ABCdef", " ", "1", "2"}));
  EXPECT_EQ(split_as("gpt-4o", "don't/\n12345"), (Words{"don't", "/\n", "123", "45"}));
  EXPECT_EQ(split_as("deepseek-llm", "ab 一二 1,\n"),
            (Words{"ab", " ", "一二", " ", "1", ",", "\n"}));
  EXPECT_EQ(split_as("default", "a+b  1234"), (Words{"a", "+", "b", " ", " ", "123", "4"}));
}

TEST(Splitter, AlwaysMakesUpTheText) {
  std::mt19937 random(5);
  for (const char* name : {"gpt-2", "llama3", "qwen2", "tekken", "gpt-4o", "deepseek-llm",
                           "deepseek-coder", "deepseek-v3", "falcon", "starcoder", "default"}) {
    for (int round = 0; round < 40; ++round) {
      const std::string text = round % 2 ? test::random_text(random, random() % 50)
                                         : test::random_bytes(random, random() % 50);
      std::string joined;
      for (const std::string& word : split_as(name, text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      EXPECT_EQ(joined, text);
    }
  }
}

TEST(Splitter, LongRunsOfOneCharacterAreNoTrouble) {
  for (const char* name : {"gpt-2", "llama3", "tekken", "deepseek-llm", "deepseek-v3"}) {
    for (const char* c : {" ", "\n", "a", "A", "1", "!", "中"}) {
      std::string run;
      for (int i = 0; i < 50'000; ++i) run += c;
      std::size_t size = 0;
      for (const std::string& word : split_as(name, run + "1")) size += word.size();
      EXPECT_EQ(size, run.size() + 1) << name << " " << c;
    }
  }
}

// Windows of any size, in texts of letters, digits, marks, runs of blanks and damaged characters.
TEST(Splitter, WordsDoNotDependOnTheWindow) {
  const std::vector<std::string> parts = {"word",   "I'll",    " ",    "   ",          "\n",
                                          "\r\n\n", "12345",   "ab ",  "\u4e00\u4e8c", "\U0001f642",
                                          "\u00e9", "e\u0301", "\xff", "\xe2\x82",     "?!...",
                                          "$",      "\t"};
  std::vector<std::vector<std::string>> all = {
      {"b+"}, {"(?=b)"}, {"a.*z"}, {"(?<= )w", "o"}, {"^w", "r"}, {"\\bI", "l"}, {"$"}, {"x*"}};
  for (const char* name : {"gpt-2", "llama3", "qwen2", "tekken", "gpt-4o", "deepseek-llm",
                           "deepseek-coder", "falcon", "default"}) {
    all.push_back(find_pre_tokenizer(name, "test").splits);
  }
  std::mt19937 rng(7);
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += parts[rng() % parts.size()];
    for (const std::vector<std::string>& patterns : all) {
      const Splitter splitter(patterns, "test");
      const auto words = [&](std::size_t window) {
        Words out;
        splitter.split(
            text, Splitter::Deadline(text.size()), [&](std::string_view w) { out.emplace_back(w); },
            window);
        return out;
      };
      const Words whole = words(text.size());
      for (const std::size_t window : {0, 1, 2, 3, 5, 16, 50}) {
        ASSERT_EQ(words(window), whole) << patterns.front() << " in windows of " << window;
      }
    }
  }
}

TEST(Splitter, RefusesWhatCannotBeAnExpression) {
  EXPECT_THROW(Splitter({"(a"}, "file"), Error);
  EXPECT_THROW(find_pre_tokenizer("no such", "file"), Error);
}

TEST(Splitter, EndsWordsThatWouldBeTooLong) {
  const Splitter splitter({" +"}, "test");
  const auto count = [&](std::size_t blanks) {
    const std::string text = "a" + std::string(blanks, ' ') + "b";
    std::size_t words = 0;
    splitter.split(text, Splitter::Deadline(text.size(), 200'000),
                   [&](std::string_view) { ++words; });
    return words;
  };
  EXPECT_EQ(count(100'000), 3u);
  EXPECT_THROW(count(1'000'000), Error);
}

TEST(Splitter, EndsExpressionsThatNobodyWaitsFor) {
  const Interruption interruption([] { return false; });
  EXPECT_THROW(split({"x"}, std::string(200'000, 'x')), Interrupted);
}

TEST(Splitter, EndsExpressionsThatWouldNotEnd) {
  EXPECT_THROW(split({"(x+x+)+y"}, std::string(40, 'x')), Error);
  // These do not backtrack, but look at the whole text at every character.
  EXPECT_THROW(split({"[\\s\\S](?=[\\s\\S]*)"}, std::string(200'000, 'x')), Error);
  EXPECT_THROW(split({"(?:[\\s\\S]*+y|x)*"}, std::string(200'000, 'x')), Error);
  std::string long_one;
  for (int i = 0; i < 2000; ++i) long_one += "(?=\\S)";
  EXPECT_THROW(split({long_one}, std::string(500'000, 'x')), Error);
  EXPECT_THROW(split({long_one, long_one}, "x"), Error);
}

// No search of these takes 10,000 steps, after which ICU would ask.
TEST(Splitter, OneDeadlineHoldsForAllPartsOfAText) {
  Vocabulary v = test::byte_vocabulary({});
  v.splits = {"b", "(?:a+)+c"};
  const Tokenizer t(v);
  std::string part;
  for (int i = 0; i < 300; ++i) part += std::string(13, 'a') + 'b';
  EXPECT_EQ(t.encode(part).size(), part.size());
  std::string text, short_parts;
  for (int i = 0; i < 60; ++i) text += part + "<s>";
  EXPECT_THROW(t.encode(text, {.parse_special = true}), Error);
  for (int i = 0; i < 20'000; ++i) short_parts += std::string(13, 'a') + "<s>";
  EXPECT_THROW(t.encode(short_parts, {.parse_special = true}), Error);
}

}  // namespace
}  // namespace ballast
