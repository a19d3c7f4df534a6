#include "text/tokenizer/merge.h"

#include <map>

#include "text/test_vocabulary.h"

namespace ballast {
namespace {

// The definition: while any two neighbours may join, join the best pair, leftmost of equals.
std::vector<int> merge_naively(std::vector<int> word,
                               const std::map<std::pair<int, int>, std::pair<int, int>>& merges) {
  while (true) {
    std::size_t best = word.size();
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const auto found = merges.find({word[i], word[i + 1]});
      if (found == merges.end()) continue;
      if (best == word.size() ||
          found->second.first < merges.at({word[best], word[best + 1]}).first) {
        best = i;
      }
    }
    if (best == word.size()) return word;
    word[best] = merges.at({word[best], word[best + 1]}).second;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Merge, AgreesWithTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const int letters = 1 + static_cast<int>(random() % 3);
    std::map<std::pair<int, int>, std::pair<int, int>> merges;  // pair -> rank, id
    int ids = letters;
    for (int rank = 0; rank < 12; ++rank) {
      const std::pair pair(static_cast<int>(random() % ids), static_cast<int>(random() % ids));
      // Equal ranks happen: several pairs may make pieces of one score.
      if (!merges.contains(pair)) merges[pair] = {rank / 2, ids++};
    }
    std::vector<int> word(random() % 40);
    std::vector<Symbol> symbols;
    for (std::size_t i = 0; i < word.size(); ++i) {
      word[i] = static_cast<int>(random() % letters);
      symbols.push_back({static_cast<std::uint32_t>(i), 1, word[i]});
    }
    merge_symbols(symbols, [&](const Symbol& a, const Symbol& b) -> std::optional<Merge> {
      const auto found = merges.find({a.id, b.id});
      if (found == merges.end()) return std::nullopt;
      return Merge{static_cast<double>(found->second.first), found->second.second};
    });
    std::vector<int> merged;
    std::uint32_t end = 0;
    for (const Symbol& s : symbols) {
      if (s.length == 0) continue;
      EXPECT_EQ(s.begin, end);
      end = s.begin + s.length;
      merged.push_back(s.id);
    }
    EXPECT_EQ(merged, merge_naively(word, merges));
  }
}

}  // namespace
}  // namespace ballast
