// The outliers of a stream against a naive float64 account of the same rule.
#include "methods/outlier_stream.h"

#include <algorithm>
#include <map>
#include <set>

#include "ballast/serialize.h"
#include "methods/balance_support.h"

namespace ballast::test {
namespace {

/// Every token's outlier score at the end of the text, and who is kept, one token after another.
class Reference {
 public:
  Reference(std::size_t most, std::size_t dilate, std::size_t block)
      : most_(most), dilate_(static_cast<long>(dilate)), block_(block) {}

  void absorb(const Tokens& tokens, std::size_t begin, std::size_t end) {
    const std::size_t dim = tokens.keys.cols();
    mean_.resize(dim, 0.0);
    for (; begin < end; begin = std::min(end, begin + block_)) {
      const std::size_t stop = std::min(end, begin + block_);
      for (std::size_t i = begin; i < stop; ++i) {
        for (std::size_t c = 0; c < dim; ++c) {
          const double n = static_cast<double>(std::min(i + 1, block_));
          mean_[c] = mean_[c] * (1 - 1 / n) + double{tokens.keys[i][c]} / n;
        }
      }
      for (std::size_t i = begin; i < stop; ++i) {
        double dot = 0;
        for (std::size_t c = 0; c < dim; ++c) dot += mean_[c] * double{tokens.keys[i][c]};
        if (dot <= 0) outliers_[static_cast<long>(i)] = dot;
      }
      // Known are tokens whose neighbours behind them have come.
      for (; settled_ + dilate_ < static_cast<long>(stop); ++settled_) settle(settled_);
    }
  }
  std::set<Position> kept() const {
    std::set<Position> out;
    for (const auto& [position, score] : kept_) out.insert(static_cast<Position>(position));
    return out;
  }
  long settled() const { return settled_; }

 private:
  void settle(long p) {
    double score = 1;
    for (const auto& [at, s] : outliers_) {
      if (std::abs(at - p) <= dilate_) score = std::min(score, s);
    }
    if (score > 0) return;
    kept_.emplace_back(p, score);
    if (kept_.size() <= most_) return;
    const auto worst = std::ranges::max_element(kept_, [](const auto& a, const auto& b) {
      return a.second < b.second || (a.second == b.second && a.first < b.first);
    });
    kept_.erase(worst);
  }

  std::size_t most_;
  long dilate_;
  std::size_t block_;
  std::vector<double> mean_;
  std::map<long, double> outliers_;
  std::vector<std::pair<long, double>> kept_;
  long settled_ = 0;
};

/// Keys around one direction with some noise: a few of them point the other way.
Tokens noisy(std::size_t n, std::uint64_t seed) {
  Tokens tokens = random_tokens(n, 7, 5, seed);
  for (std::size_t i = 0; i < n; ++i) tokens.keys[i][0] += 1.5f;
  return tokens;
}

TEST(OutlierStream, KeepsWhatTheReferenceKeeps) {
  for (std::size_t n : {0, 1, 63, 500}) {
    const Tokens tokens = noisy(n, n + 1);
    for (auto [most, dilate] : {std::pair{1, 0}, {9, 0}, {9, 3}, {40, 25}}) {
      for (std::size_t chunk : {1, 7, 96, 1000}) {
        const auto setup = setup_of("balancekv", Protocol::stream, 500, tokens);
        const auto room = static_cast<std::size_t>(most);
        OutlierStream stream(setup, room, static_cast<std::size_t>(dilate), 64);
        Reference reference(room, static_cast<std::size_t>(dilate), 64);
        std::vector<Position> released;
        for (std::size_t at = 0; at < n; at += chunk) {
          const std::size_t count = std::min(chunk, n - at);
          stream.absorb(tokens.block(at, count), [&](const Block& block, std::size_t i) {
            released.push_back(block.first + static_cast<Position>(i));
          });
          reference.absorb(tokens, at, at + count);
          EXPECT_LE(stream.size(), room + static_cast<std::size_t>(dilate));
        }
        std::vector<KeptEntry> kept;
        stream.kept(kept);
        std::set<Position> exact, all(released.begin(), released.end());
        for (const KeptEntry& e : kept) {
          EXPECT_EQ(e.weight, 1.0f);
          all.insert(e.position);
          if (e.position < reference.settled()) exact.insert(e.position);
        }
        EXPECT_EQ(exact, reference.kept()) << n << " tokens, " << chunk << " at a time";
        // Nothing is lost, and nothing is there twice.
        EXPECT_EQ(released.size() + kept.size(), n);
        EXPECT_EQ(all.size(), n);
      }
    }
  }
}

TEST(OutlierStream, BalanceKvKeepsANeedleToTheEndOfAStream) {
  const std::size_t n = 5000, capacity = 200;
  Tokens tokens = random_tokens(n, 16, 8, 3, 0.3f);
  for (std::size_t i = 0; i < n; ++i) tokens.keys[i][0] += i == 700 ? -3.0f : 3.0f;
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    SummarySetup setup =
        setup_of("balancekv:outliers=yes,dilate=4", Protocol::stream, capacity, tokens);
    setup.layers = 3;
    setup.random.layer = layer;
    auto summary = make_summary(setup);
    for (std::size_t at = 0; at < n; at += 100) {
      summary->absorb(tokens.block(at, 100));
      EXPECT_LE(summary->entries(), capacity);
      EXPECT_NEAR(total_weight(*summary) / static_cast<double>(at + 100), 1, 0.02);
    }
    std::size_t exact = 0;
    for (const KeptEntry& e : summary->kept()) {
      exact += std::abs(e.position - 700) <= 4 && e.weight == 1.0f ? 1 : 0;
    }
    EXPECT_EQ(exact, layer >= 1 ? 9u : 0u) << layer;
  }
}

TEST(OutlierStream, GoesOnToTheBitAfterSavingAndUnites) {
  const Tokens tokens = noisy(1500, 4);
  SummarySetup setup =
      setup_of("balancekv:outliers=yes,outlier-layer=0,dilate=5", Protocol::stream, 120, tokens);
  auto whole = make_summary(setup), first = make_summary(setup), second = make_summary(setup);
  whole->absorb(tokens.block(0, 700));
  MemoryWriter out;
  whole->save(out);
  {
    ByteReader in(out.bytes, "cache");
    first->load(in);
  }
  for (Summary* summary : {whole.get(), first.get()}) summary->absorb(tokens.block(700, 300));
  const auto a = whole->kept(), b = first->kept();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].position, b[i].position);
    EXPECT_EQ(a[i].weight, b[i].weight);
  }
  second->absorb(tokens.block(1000, 500));
  first->merge(*second);
  EXPECT_LE(first->entries(), 120u);
  EXPECT_NEAR(total_weight(*first) / 1500, 1, 0.05);
}

TEST(OutlierStream, TinyRoomsAreNotExceeded) {
  const Tokens tokens = noisy(300, 5);
  for (std::size_t capacity : {0, 1, 2, 3, 5}) {
    for (const char* share : {"0", "0.5", "1"}) {
      const std::string method =
          std::string("balancekv:outliers=yes,outlier-layer=0,outlier-share=") + share;
      auto summary = make_summary(setup_of(method, Protocol::stream, capacity, tokens));
      if (!summary) continue;
      for (std::size_t at = 0; at < 300; at += 50) {
        summary->absorb(tokens.block(at, 50));
        EXPECT_LE(summary->entries(), capacity);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::test
