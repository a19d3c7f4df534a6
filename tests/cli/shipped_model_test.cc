// The model that is shipped answers what a newcomer asks it, without a flag, and stops.
#include <sstream>

#include "cli/model_run.h"
#include "paths.h"

namespace ballast {
namespace {

using test::run_with;
using test::Said;
using test::Words;

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

TEST(ShippedModel, FindsThemInAQuarterOfTheCache) {
  EXPECT_GE(count(right("record", {"--cache", "1/4"})), 7u);
}

TEST(ShippedModel, SaysWhatItIsToAGreeting) {
  const Said said = run_with({"chat", "-m", kSource + "/models/ballast-mini.gguf"}, "Hello\n");
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, testing::HasSubstr("I find things in texts."));
}

TEST(ShippedModel, FindsTheNeedlesOfAStory) {
  const std::vector<bool> found = right("story", {});
  ASSERT_GE(found.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(found[i]) << i;
}

}  // namespace
}  // namespace ballast
