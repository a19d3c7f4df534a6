#include "text/answer/thoughts.h"

#include <gmock/gmock.h>

namespace ballast::test {
namespace {

ThoughtReader::Parts read(const std::string& text, std::size_t size, bool open = false,
                          bool keeps = false) {
  ThoughtReader reader(open, keeps);
  ThoughtReader::Parts out;
  const auto add = [&](const ThoughtReader::Parts& parts) {
    out.thoughts += parts.thoughts;
    out.answer += parts.answer;
  };
  for (std::size_t at = 0; at < text.size(); at += size) add(reader.push(text.substr(at, size)));
  add(reader.finish());
  return out;
}

struct Case {
  std::string text;
  std::string thoughts;
  std::string answer;
  bool open = false;
};

TEST(Thoughts, StandBetweenTagsAtTheBeginning) {
  const std::vector<Case> all = {
      {"", "", ""},
      {" \n", "", " \n"},
      {"Hello.", "", "Hello."},
      {"<thin", "", "<thin"},
      {" <thing>", "", " <thing>"},
      {"<think>\nTwo and two.\n</think>\n\nFour. ", "Two and two.", "Four. "},
      {"\n<think>a</think>b", "a", "b"},
      {"<think>\n\n</think>\n\nFour.", "", "Four."},
      {"<think>a  b </thin < </think>\n", "a  b </thin <", ""},
      {"<think>no end </thi", "no end </thi", ""},
      {"<think>a</think>b <think>c</think>", "a", "b <think>c</think>"},
      {"An answer <think>a</think>", "", "An answer <think>a</think>"},
      {"a\n</think>\n\nb", "a", "b", true},
      {"<think>\na</think>b", "a", "b", true},
      {"\n\na ", "a", "", true},
      {"", "", "", true},
  };
  for (const Case& one : all) {
    for (const std::size_t size : {1, 2, 3, 5, 100}) {
      const ThoughtReader::Parts parts = read(one.text, size, one.open);
      EXPECT_EQ(parts.thoughts, one.thoughts) << one.text << " by " << size;
      EXPECT_EQ(parts.answer, one.answer) << one.text << " by " << size;
      const ThoughtReader::Parts kept = read(one.text, size, one.open, true);
      EXPECT_EQ(kept.thoughts + kept.answer, one.text) << size;
      EXPECT_EQ(kept.answer, one.answer) << size;
    }
  }
}

TEST(Thoughts, AreSentAtOnceAndInTimeInProportion) {
  ThoughtReader reader(false);
  EXPECT_EQ(reader.push("<think>Two").thoughts, "Two");
  EXPECT_EQ(reader.push(" and </th").thoughts, " and");
  EXPECT_EQ(reader.push("ink>4").answer, "4");
  EXPECT_EQ(reader.push("!").answer, "!");
  for (const char c : {' ', '<', 'x'}) {
    const std::string text(2'000'000, c);
    const ThoughtReader::Parts parts = read("<think>x" + text + "x", 2);
    EXPECT_EQ(parts.thoughts, "x" + text + "x");
  }
}

}  // namespace
}  // namespace ballast::test
