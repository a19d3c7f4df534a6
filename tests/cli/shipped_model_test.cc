// The model that is shipped answers what a newcomer asks it, without a flag, and stops.
#include <fmt/format.h>

#include <cstring>
#include <sstream>

#include "cli/model_run.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::run_with;
using test::Said;
using test::Words;
using test::operator+;

const std::string kSource = BALLAST_SOURCE_DIR;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) out.push_back(line);
  }
  return out;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \n"), last = text.find_last_not_of(" \n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

/// Asks the questions that are beside a text in examples/.
std::vector<bool> right(const std::string& name, const Words& more) {
  const std::string base = kSource + "/examples/" + name;
  Words words = {"run",
                 "-m",
                 kSource + "/models/ballast-mini.gguf",
                 "--context",
                 base + ".txt",
                 "--questions",
                 base + "-questions.txt",
                 "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Said said = run_with(words);
  EXPECT_EQ(said.exit_code, 0) << said.err;
  const std::vector<std::string> expected = lines_of(read_text(base + "-answers.txt"));
  std::vector<bool> out;
  const nlohmann::json all = said.json();
  for (const nlohmann::json& answer : all.at("answers")) {
    const std::string text = trimmed(answer.at("text"));
    const bool stopped = answer.at("finish") == "end";
    out.push_back(stopped && out.size() < expected.size() && text == expected[out.size()]);
  }
  EXPECT_EQ(out.size(), expected.size());
  return out;
}

std::size_t count(const std::vector<bool>& x) {
  return static_cast<std::size_t>(std::count(x.begin(), x.end(), true));
}

TEST(ShippedModel, FindsTheLinesOfARecordAndStops) { EXPECT_GE(count(right("record", {})), 7u); }

TEST(ShippedModel, FindsNeedlesAndFactsInAStory) { EXPECT_GE(count(right("story", {})), 6u); }

TEST(ShippedModel, FindsThemInAQuarterOfTheCache) {
  EXPECT_GE(count(right("record", {"--cache", "1/4"})), 7u);
}

TEST(ShippedModel, FindsThemWhereTheExactCacheHasNoRoom) {
  // The record's exact cache takes 2 MiB; with --memory the replay pass goes chunk by chunk.
  const Words ask = {"run",
                     "-m",
                     kSource + "/models/ballast-mini.gguf",
                     "--context",
                     kSource + "/examples/record.txt",
                     "--questions",
                     kSource + "/examples/record-questions.txt",
                     "--memory",
                     "1536K",
                     "--json"};
  const Said said = run_with(ask);
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.err, testing::HasSubstr("more than the 1.50 MiB given"));
  const nlohmann::json report = said.json();
  for (const nlohmann::json& answer : report.at("answers")) {
    EXPECT_LE(answer.at("cache").at("bytes").at("total"), 1536 * 1024);
  }
  EXPECT_GE(count(right("record", {"--memory", "1536K", "-q"})), 7u);
  // Scores that add up over the whole text are of prefill.
  const Said sums = run_with(ask + Words{"--method", "replay:score=rms", "-q"});
  EXPECT_EQ(sums.exit_code, 0) << sums.err;
}

TEST(ShippedModel, AConversationForgetsByTheSecondReading) {
  const std::string context = kSource + "/examples/record.txt";
  const Words chat = {"chat",      "-m",    kSource + "/models/ballast-mini.gguf",
                      "--context", context, "--stats",
                      "-n",        "12"};
  const std::string question = "What is the number in line digital-crystal?\n";
  const Said exact = run_with(chat, question);
  const Said small = run_with(chat + Words{"--cache", "512K"}, question);
  ASSERT_EQ(small.exit_code, 0) << small.err;
  EXPECT_EQ(small.out, exact.out);
  EXPECT_THAT(small.err, testing::HasSubstr(" KiB"));
  EXPECT_THAT(exact.err, testing::HasSubstr(" MiB"));
}

TEST(ShippedModel, SaysWhatItIsToAGreeting) {
  const Said said = run_with({"chat", "-m", kSource + "/models/ballast-mini.gguf"}, "Hello\n");
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, testing::HasSubstr("I find things in texts."));
}

/// A copy of the model whose file says another probability.
std::string unsure_below(const TempDir& dir, float value) {
  std::string bytes = read_text(kSource + "/models/ballast-mini.gguf");
  const std::string key = "ballast.unsure_below";
  const std::size_t at = bytes.find(key);
  EXPECT_NE(at, std::string::npos);
  std::memcpy(bytes.data() + at + key.size() + sizeof(std::uint32_t), &value, sizeof(value));
  const auto path = dir / fmt::format("{}.gguf", value);
  write_text(path, bytes);
  return path.string();
}

TEST(ShippedModel, AnAnswerThatMayBeWrongIsMarked) {
  const TempDir dir;
  const std::string note = "note: the model is unsure of this answer; it may be wrong\n";
  const std::string context = kSource + "/examples/record.txt";
  const std::string question = "What is the number in line digital-crystal?";
  for (const float value : {0.0f, 1.0f}) {
    const std::string model = unsure_below(dir, value);
    const Words run = {"run", "-m", model, "--context", context, "--question", question};
    const Said asked = run_with(run);
    EXPECT_EQ(trimmed(asked.out), "4174");
    EXPECT_EQ(asked.err.find(note) != std::string::npos, value == 1.0f) << asked.err;
    EXPECT_THAT(run_with(run + Words{"-q"}).err, testing::IsEmpty());
    // One note for several.
    EXPECT_EQ(run_with(run + Words{"--question", question}).err.find("unsure of answers 1, 2;") !=
                  std::string::npos,
              value == 1.0f);
    const nlohmann::json answer = run_with(run + Words{"--json"}).json().at("answers").at(0);
    EXPECT_EQ(answer.at("unsure"), value == 1.0f);
    EXPECT_GT(answer.at("least_probability"), 0.5);
    EXPECT_LT(answer.at("least_probability"), 1);
    const Said talk = run_with({"chat", "-m", model, "--context", context}, question + "\n");
    EXPECT_EQ(talk.err.find(note) != std::string::npos, value == 1.0f) << talk.err;
  }
}

TEST(ShippedModel, WhatIsNotMarkedIsRight) {
  std::size_t unmarked = 0, wrong = 0;
  for (const std::string name : {"story", "record"}) {
    const std::string base = kSource + "/examples/" + name;
    const std::vector<std::string> expected = lines_of(read_text(base + "-answers.txt"));
    const nlohmann::json all =
        run_with({"run", "-m", kSource + "/models/ballast-mini.gguf", "--context", base + ".txt",
                  "--questions", base + "-questions.txt", "--json"})
            .json();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const nlohmann::json& answer = all.at("answers").at(i);
      if (answer.at("unsure")) continue;
      ++unmarked;
      wrong += trimmed(answer.at("text")) != expected[i] ? 1u : 0u;
    }
  }
  EXPECT_GE(unmarked, 12u);
  EXPECT_LE(wrong, 1u);
}

TEST(ShippedModel, FindsTheNeedlesOfAStory) {
  const std::vector<bool> found = right("story", {});
  ASSERT_GE(found.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(found[i]) << i;
}

// The size that is chosen is the one given by hand, and says what it costs.
TEST(ShippedModel, ChoosesTheSizeOfACache) {
  const auto asked = [](const Words& more) {
    const Said said =
        run_with(Words{"run", "-m", kSource + "/models/ballast-mini.gguf", "--context",
                       kSource + "/examples/record.txt", "--json", "--question", "Who?"} +
                 more);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return said.json();
  };
  const nlohmann::json chosen = asked({"--cache", "auto"});
  const nlohmann::json& tried = chosen["statistics"]["tried"];
  ASSERT_FALSE(tried.empty());
  for (std::size_t i = 0; i + 1 < tried.size(); ++i) EXPECT_GT(tried[i]["kl"], 0.01);
  const nlohmann::json& last = tried.back();
  EXPECT_LE(last["kl"], 0.01);
  const nlohmann::json given = asked({"--cache", last["bytes"].get<std::string>()});
  EXPECT_EQ(chosen["method"], given["method"]);
  EXPECT_EQ(chosen["answers"][0]["text"], given["answers"][0]["text"]);
  EXPECT_EQ(chosen["statistics"]["gauge"]["kl"], given["statistics"]["gauge"]["kl"]);
  EXPECT_TRUE(asked({})["statistics"]["gauge"].is_null());
  EXPECT_NE(run_with({"chat", "-m", kSource + "/models/ballast-mini.gguf", "--cache", "auto"})
                .err.find("give 1/8"),
            std::string::npos);
}

}  // namespace
}  // namespace ballast
