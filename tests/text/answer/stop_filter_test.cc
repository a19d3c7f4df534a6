#include "text/answer/stop_filter.h"

#include <gtest/gtest.h>

#include <random>

#include "ballast/error.h"

namespace ballast {
namespace {

// Looks for every stop string in all that is held.
struct Naive {
  std::string push(std::string_view text) {
    held += text;
    std::size_t end = std::string::npos, kept = 0;
    for (const std::string& stop : stops) {
      end = std::min(end, held.find(stop));
      for (std::size_t n = 1; n < stop.size(); ++n) {
        if (held.ends_with(stop.substr(0, n))) kept = std::max(kept, n);
      }
    }
    found = end != std::string::npos;
    const std::size_t count = found ? end : held.size() - kept;
    const std::string out = held.substr(0, count);
    held.erase(0, count);
    return out;
  }
  std::vector<std::string> stops;
  std::string held;
  bool found = false;
};

TEST(StopFilter, HoldsBackWhatMayBeAStop) {
  StopFilter filter({"</s>", "\n\n"});
  EXPECT_EQ(filter.push("one\n"), "one");
  EXPECT_EQ(filter.push("two<"), "\ntwo");
  EXPECT_EQ(filter.push("b><"), "<b>");
  EXPECT_FALSE(filter.found());
  EXPECT_EQ(filter.push("/s> three"), "");
  EXPECT_TRUE(filter.found());
  EXPECT_EQ(filter.push("four"), "");
  EXPECT_TRUE(filter.found());
  StopFilter none({});
  EXPECT_EQ(none.push("all"), "all");
  StopFilter open({"ab"});
  EXPECT_EQ(open.push("xa"), "x");
  EXPECT_EQ(open.flush(), "a");
  EXPECT_THROW(StopFilter({"a", ""}), Error);
}

TEST(StopFilter, DoesAsASearchOfAllThatIsHeld) {
  std::mt19937 random(9);
  const auto letters = [&](std::size_t least, std::size_t most) {
    std::string text(least + random() % (most - least + 1), ' ');
    for (char& c : text) c = "aab"[random() % 3];
    return text;
  };
  int found = 0;
  for (int round = 0; round < 20'000; ++round) {
    Naive naive;
    for (std::size_t i = random() % 4; i > 0; --i) naive.stops.push_back(letters(1, 9));
    StopFilter filter(naive.stops);
    for (int pushes = 0; pushes < 8; ++pushes) {
      const std::string text = letters(0, 4);
      ASSERT_EQ(filter.push(text), naive.push(text));
      ASSERT_EQ(filter.found(), naive.found);
      if (filter.found()) break;
    }
    found += filter.found();
    ASSERT_EQ(filter.flush(), naive.held);
  }
  EXPECT_GT(found, 5'000);
  EXPECT_LT(found, 15'000);
}

// Trying each length of what is held would take minutes.
TEST(StopFilter, ALongStopOfOneLetter) {
  const std::string run(4'000'000, 'a');
  StopFilter filter({run + "b", "b" + run});
  for (std::size_t at = 0; at < run.size(); at += 1000) {
    ASSERT_EQ(filter.push(std::string_view(run).substr(at, 1000)), "");
  }
  EXPECT_EQ(filter.push("c"), run + "c");
  EXPECT_EQ(filter.push("bac"), "bac");
  EXPECT_EQ(filter.push("a" + run), "a");  // the second holds a, the first all but that
  EXPECT_EQ(filter.push("b"), "");
  EXPECT_TRUE(filter.found());
}

}  // namespace
}  // namespace ballast
