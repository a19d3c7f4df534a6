#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/tokenizer/merge_table.h"
#include "text/tokenizer/piece_index.h"

namespace ballast {
namespace {

TEST(PieceIndex, FindsAsAMapDoes) {
  std::mt19937 random(7);
  for (const std::size_t count : {0, 1, 2, 3, 50, 3000}) {
    std::vector<std::string> spellings(count);
    for (auto& text : spellings) {  // short ones are often the same, some are empty
      for (std::size_t i = random() % 5; i > 0; --i) text += static_cast<char>('a' + random() % 6);
    }
    const auto wanted = [](std::size_t i) { return i % 5 != 3; };
    std::map<std::string, Token> reference;
    for (std::size_t i = 0; i < count; ++i) {
      if (wanted(i) && !spellings[i].empty()) reference[spellings[i]] = static_cast<Token>(i);
    }
    const PieceIndex index(spellings, wanted);
    spellings.push_back("not there");
    spellings.push_back("");
    for (const auto& text : spellings) {
      const auto found = reference.find(text);
      EXPECT_EQ(index.find(text), found == reference.end() ? kNoToken : found->second) << text;
    }
  }
}

TEST(MergeTable, FindsAsAMapDoes) {
  std::mt19937 random(8);
  for (const int count : {0, 1, 2, 40, 5000}) {
    MergeTable table(count);
    EXPECT_TRUE(table.empty());
    std::map<std::pair<Token, Token>, std::pair<double, Token>> reference;
    const auto id = [&] { return static_cast<Token>(random() % 90); };
    for (int rank = 0; rank < count; ++rank) {
      const Token left = id(), right = id(), joined = id();
      table.add(left, right, joined);
      reference.try_emplace({left, right}, rank, joined);  // the first of equals counts
    }
    EXPECT_EQ(table.empty(), count == 0);
    for (Token left = kNoToken; left < 92; ++left) {
      for (Token right = kNoToken; right < 92; ++right) {
        const auto found = table.find(left, right);
        const auto expected = reference.find({left, right});
        ASSERT_EQ(found.has_value(), expected != reference.end()) << left << ' ' << right;
        if (!found) continue;
        EXPECT_EQ(std::pair(found->order, found->id), expected->second);
      }
    }
  }
}

TEST(Merges, GiveBackWhatWasAdded) {
  Merges merges;
  EXPECT_TRUE(merges.empty());
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"a", "b"}, {"", "long left piece"}, {"\u2581", ""}, {"", ""}, {std::string("\0", 1), "z"}};
  for (const auto& [left, right] : pairs) merges.add(left, right);
  ASSERT_EQ(merges.size(), pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(merges[i].first, pairs[i].first) << i;
    EXPECT_EQ(merges[i].second, pairs[i].second) << i;
  }
}

}  // namespace
}  // namespace ballast
