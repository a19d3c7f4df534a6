// The replay pass, and caches whose bytes one budget divides.
#include <fmt/format.h>

#include <filesystem>

#include "ballast/error.h"
#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "cache/replay_reading.h"
#include "methods/allocation.h"
#include "methods/replay.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

/// Scores of one KV head, written from the formula in float64.
/// `parts`: of the replay pass, those that count.
std::vector<double> reference(const Reading& r, std::size_t l, std::size_t h, ReplayScore score,
                              std::size_t parts = 2) {
  std::vector<double> out(kText, 0.0);
  for (std::size_t g = 0; g < 2; ++g) {
    const std::size_t q = 2 * h + g;
    std::vector<double> most(kText, 0.0);
    for (std::size_t i = 0; i < parts * kAgain; ++i) {
      const std::size_t part = i / kAgain * kAgain;
      std::vector<double> e;
      double sum = 0;
      const auto add = [&](const Matrix& keys, std::size_t row) {
        double dot = 0;
        for (std::size_t c = 0; c < 16; ++c) {
          dot += double{r.again.queries[l][i][q * 16 + c]} * double{keys[row][h * 16 + c]};
        }
        e.push_back(std::exp(0.25 * dot));
        sum += e.back();
      };
      for (std::size_t j = 0; j < kText; ++j) add(r.text.keys[l], j);
      for (std::size_t j = part; j <= i; ++j) add(r.again.keys[l], j);
      for (std::size_t j = 0; j < kText; ++j) {
        const double p = e[j] / sum;
        if (score == ReplayScore::max) most[j] = std::max(most[j], p * double{r.weights[i]});
        if (score == ReplayScore::plain) most[j] = std::max(most[j], p);
        if (score == ReplayScore::rms) most[j] += p * p;
        if (score == ReplayScore::mean) most[j] += p;
      }
    }
    for (std::size_t j = 0; j < kText; ++j) {
      double norm = 0;
      for (std::size_t a = 0; a < 24; ++a) {
        for (std::size_t b = 0; b < 24; ++b) {
          norm += double{r.text.values[l][j][h * 24 + a]} * double{r.grams[l][q * 24 + a][b]} *
                  double{r.text.values[l][j][h * 24 + b]};
        }
      }
      if (score == ReplayScore::max) {
        out[j] = std::max(out[j], most[j] * std::sqrt(norm));
      } else if (score == ReplayScore::plain) {
        out[j] = std::max(out[j], most[j]);
      } else {
        out[j] += most[j];
      }
    }
  }
  return out;
}

TEST(Replay, ScoresAreThoseOfTheFormula) {
  const Reading r;
  const std::pair<const char*, ReplayScore> scores[] = {
      {"replay:bytes=1/8,score=max", ReplayScore::max},
      {"replay:bytes=1/8,score=plain", ReplayScore::plain},
      {"replay:bytes=1/8,score=rms", ReplayScore::rms},
      {"replay:bytes=1/8,score=mean", ReplayScore::mean},
      {"kvzip:bytes=1/8", ReplayScore::plain},
      {"kvzip-plus:bytes=1/8", ReplayScore::max}};
  for (const auto& [name, score] : scores) {
    Cache cache = r.read(name);
    r.replay(cache);
    for (std::size_t l = 0; l < 2; ++l) {
      for (std::size_t h = 0; h < 2; ++h) {
        const std::span<const float> got = scoring_of(cache).scores(l, h);
        const std::vector<double> want = reference(r, l, h, score);
        ASSERT_EQ(got.size(), kText);
        for (std::size_t j = 0; j < kText; ++j) {
          EXPECT_NEAR(got[j], want[j], 1e-5 * want[j] + 1e-7) << name << " entry " << j;
        }
      }
    }
  }
}

// The scores of a chunk's entries come from a softmax over the first 4 tokens, the chunk and what
// reads it again; the answers from everything.
TEST(Replay, AChunkMayScoreItsOwnEntriesAlone) {
  const Reading r;
  constexpr std::size_t kChunk = 16;
  for (const std::string method : {"replay", "kvzip", "kvzip-plus"}) {
    Cache cache = r.read(method + ":bytes=1/8,reading=own,chunk=16"),
          whole = r.read(method + ":bytes=1/8");
    for (std::size_t l = 0; l < 2; ++l) {
      scoring_of(cache).start_replay(l, r.grams[l].view());
      scoring_of(whole).start_replay(l, r.grams[l].view());
      std::vector<std::vector<double>> want(2, std::vector<double>(kText, 0.0));
      for (std::size_t begin = 0; begin < kText; begin += kChunk) {
        const std::size_t end = std::min(begin + kChunk, kText),
                          first = begin / kChunk % 2 * kAgain;
        Matrix out(kAgain, 4 * 24), other(kAgain, 4 * 24);
        const auto part = [&](const Matrix& m) { return m.view().slice(first, kAgain); };
        const auto weights = std::span(r.weights).subspan(first, kAgain);
        for (Cache* one : {&cache, &whole}) {
          scoring_of(*one).replay(l, part(r.again.keys[l]), part(r.again.values[l]),
                                  part(r.again.queries[l]), weights,
                                  (one == &cache ? out : other).view());
        }
        for (std::size_t t = 0; t < kAgain; ++t) {
          for (std::size_t c = 0; c < out.cols(); ++c) EXPECT_NEAR(out[t][c], other[t][c], 1e-5);
        }
        for (std::size_t q = 0; q < 4; ++q) {
          const std::size_t h = q / 2;
          for (std::size_t i = 0; i < kAgain; ++i) {
            double sum = 0;
            const auto share = [&](const Matrix& keys, std::size_t row) {
              double dot = 0;
              for (std::size_t c = 0; c < 16; ++c) {
                dot += double{r.again.queries[l][first + i][q * 16 + c]} *
                       double{keys[row][h * 16 + c]};
              }
              return std::exp(0.25 * dot);
            };
            for (std::size_t j = 0; j < std::min<std::size_t>(4, begin); ++j) {
              sum += share(r.text.keys[l], j);
            }
            for (std::size_t j = begin; j < end; ++j) sum += share(r.text.keys[l], j);
            for (std::size_t j = 0; j <= i; ++j) sum += share(r.again.keys[l], first + j);
            for (std::size_t j = begin; j < end; ++j) {
              double square = 0;
              for (std::size_t a = 0; a < 24; ++a) {
                for (std::size_t b = 0; b < 24; ++b) {
                  square += double{r.text.values[l][j][h * 24 + a]} *
                            double{r.grams[l][q * 24 + a][b]} *
                            double{r.text.values[l][j][h * 24 + b]};
                }
              }
              const double p = share(r.text.keys[l], j) / sum;
              want[h][j] = std::max(
                  want[h][j], method == "kvzip" ? p : p * double{weights[i]} * std::sqrt(square));
            }
          }
        }
      }
      for (std::size_t h = 0; h < 2; ++h) {
        for (std::size_t j = 0; j < kText; ++j) {
          EXPECT_NEAR(scoring_of(cache).scores(l, h)[j], want[h][j], 1e-5 * want[h][j] + 1e-7)
              << method << " entry " << j;
        }
      }
    }
  }
}

TEST(Replay, AFloorIsKeptInEveryHead) {
  Reading r;
  // Nothing of layer 1 is worth anything.
  for (std::size_t i = 0; i < 4 * 24; ++i) {
    for (float& x : r.grams[1][i]) x *= 1e-12f;
  }
  const std::size_t share = kText * (16 + 24) * 2 / 4,
                    entry = parse_tiers("int8", 16, 24)[0].bytes - 3;  // positions take a byte
  for (double floor : {0.0, 0.3, 1.0}) {
    Cache cache =
        r.read(fmt::format("replay:bytes=0.25,sink=1,window=2,tiers=int8,floor={}", floor));
    r.replay(cache);
    std::vector<std::vector<float>> scores;
    for (std::size_t h = 0; h < 2; ++h) {
      const auto s = scoring_of(cache).scores(1, h);
      scores.emplace_back(s.begin(), s.end());
    }
    cache.finish_prompt();
    EXPECT_LE(cache.bytes().used(), 4 * share);
    for (std::size_t h = 0; h < 2; ++h) {
      std::vector<std::size_t> best;
      for (std::size_t j = 1; j + 2 < kText; ++j) best.push_back(j);
      std::ranges::sort(best, std::greater(), [&](std::size_t j) { return scores[h][j]; });
      const std::size_t means = (16 + 24) * sizeof(float);
      const auto held = static_cast<std::size_t>(floor * double((share - means) / entry));
      best.resize(held - std::min<std::size_t>(held, 3));
      std::vector<Position> kept;
      for (const KeptEntry& e : cache.kept(1, h)) kept.push_back(e.position);
      for (std::size_t j : best) EXPECT_TRUE(std::ranges::count(kept, Position(j)) == 1) << j;
      EXPECT_EQ(kept.size(), 3 + best.size()) << floor;
    }
  }
}

// Root mean squares, not their squares, are what the budget is divided by.
TEST(Replay, RmsIsARoot) {
  const Reading r;
  Cache squares = r.read("replay:bytes=0.3,score=rms"), roots = r.read("replay:bytes=0.3");
  for (std::size_t l = 0; l < 2; ++l) {
    for (std::size_t h = 0; h < 2; ++h) {
      std::vector<float> scores(kText), square(kText);
      for (std::size_t j = 0; j < kText; ++j) {
        scores[j] = std::ldexp(1.0f, -static_cast<int>((7 * j + 3 * h + l) % 12));
        square[j] = scores[j] * scores[j];
      }
      scoring_of(squares).set_scores(l, h, square);
      scoring_of(roots).set_scores(l, h, scores);
    }
  }
  squares.finish_prompt();
  roots.finish_prompt();
  for (std::size_t h = 0; h < 4; ++h) {
    const auto a = squares.segments(h / 2, h % 2), b = roots.segments(h / 2, h % 2);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_GT(a.size(), 1u);
    for (std::size_t s = 0; s < a.size(); ++s) {
      EXPECT_EQ(a[s].keys.type, b[s].keys.type);
      EXPECT_EQ(a[s].keys.rows, b[s].keys.rows);
    }
    EXPECT_TRUE(std::ranges::equal(squares.kept(h / 2, h % 2), roots.kept(h / 2, h % 2), {},
                                   &KeptEntry::position, &KeptEntry::position));
  }
  EXPECT_THAT(error_of([&] { scoring_of(roots).set_scores(0, 0, std::vector<float>(3)); }),
              testing::HasSubstr("3 scores for 90 tokens"));
}

// The question's largest attention, pooled over 7 tokens, or the score that was.
TEST(Replay, AQuestionThatIsKnownScoresToo) {
  const Reading r;
  const auto ask = [&](Cache& cache) {
    Matrix out(kAgain, 4 * 24);
    for (std::size_t l = 0; l < 2; ++l) {
      scoring_of(cache).replay_question(l, r.again.keys[l].view().slice(0, kAgain),
                                        r.again.values[l].view().slice(0, kAgain),
                                        r.again.queries[l].view().slice(0, kAgain),
                                        std::span(r.weights).first(kAgain), out.view());
    }
  };
  for (const auto& [name, score] :
       {std::pair{"max", ReplayScore::max}, std::pair{"plain", ReplayScore::plain}}) {
    const auto method = [&](double bytes) {
      return fmt::format("replay:bytes={},score={},question=known", bytes, name);
    };
    Cache cache = r.read(method(0.125));
    r.replay(cache);
    ask(cache);
    for (std::size_t l = 0; l < 2; ++l) {
      for (std::size_t h = 0; h < 2; ++h) {
        const std::vector<double> all = reference(r, l, h, score),
                                  question = reference(r, l, h, score, 1);
        std::size_t higher = 0;
        for (std::size_t j = 0; j < kText; ++j) {
          double want = all[j];
          for (std::size_t i = 0; i < kText; ++i) {
            if (i + 3 >= j && i <= j + 3) want = std::max(want, question[i]);
          }
          EXPECT_NEAR(scoring_of(cache).scores(l, h)[j], want, 1e-5 * want + 1e-7) << j;
          higher += want > all[j];
        }
        EXPECT_GT(higher, kText / 2);
      }
    }
    // A fork is asked by itself: the scores that it shares with others stay.
    CacheOptions options = replaying("exact");
    options.recording.include(Policy::parse(method(0.3)));
    Cache whole(r.text.shape, options);
    feed(whole, r.text, 0, kText, 32);
    r.replay(whole);
    Cache fork = fork_of(whole, Policy::parse(method(0.3)), 0);
    ask(fork);
    EXPECT_TRUE(std::ranges::equal(scoring_of(fork).scores(1, 1), scoring_of(cache).scores(1, 1)));
    EXPECT_FALSE(
        std::ranges::equal(scoring_of(whole).scores(1, 1), scoring_of(cache).scores(1, 1)));
  }
  Cache later = r.read("replay:bytes=1/8");
  r.replay(later);
  EXPECT_THAT(error_of([&] { ask(later); }), testing::HasSubstr("question=known"));
  for (const std::string score : {"rms", "mean"}) {
    EXPECT_THAT(error_of([&] { r.read("replay:bytes=1/8,question=known,score=" + score); }),
                testing::HasSubstr("score=max"));
  }
}

/// Means in float64, from the exact cache.
TEST(Replay, MeansStandForNeighboursAmongTheEvicted) {
  const TempDir dir;
  const Reading r;
  const std::string tiers = "replay:bytes=0.4,sink=1,window=2,tiers=int8,means=";
  Cache cache = r.compressed(tiers + "0.2"), exact = r.read("exact");
  EXPECT_LE(cache.bytes().used(), 0.4 * kText * 2 * 2 * (16 + 24) * 2);
  std::size_t means = 0;
  for (std::size_t l = 0; l < 2; ++l) {
    for (std::size_t h = 0; h < 2; ++h) {
      Matrix keys(kText, 16), values(kText, 24);
      std::size_t at = 0;
      for (const Segment& s : exact.segments(l, h)) {
        s.keys.decode(keys.view().slice(at, s.keys.rows));
        s.values.decode(values.view().slice(at, s.keys.rows));
        at += s.keys.rows;
      }
      ASSERT_EQ(at, kText);
      std::vector<bool> kept(kText);
      double weight = 0;
      std::vector<Position> middle;
      for (const KeptEntry& entry : cache.kept(l, h)) {
        weight += double{entry.weight};
        (entry.weight == 1 ? kept[std::size_t(entry.position)] = true
                           : (middle.push_back(entry.position), true));
      }
      EXPECT_NEAR(weight, kText, 1e-3);
      std::vector<std::size_t> evicted;
      for (std::size_t t = 0; t < kText; ++t) {
        if (!kept[t]) evicted.push_back(t);
      }
      for (const Segment& s : cache.segments(l, h)) {
        if (s.log_weights == nullptr) continue;
        const std::size_t count = s.keys.rows;
        ASSERT_EQ(middle.size(), count);
        means += count;
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t first = i * evicted.size() / count,
                            end = (i + 1) * evicted.size() / count;
          EXPECT_FLOAT_EQ(s.log_weights[i], std::log(float(end - first)));
          EXPECT_EQ(std::size_t(middle[i]), evicted[(first + end) / 2]);
          std::vector<float> row(24);
          for (const auto& [rows, all] :
               {std::pair(&s.keys, &keys), std::pair(&s.values, &values)}) {
            rows->decode(i, std::span(row).first(rows->dim));
            for (std::size_t d = 0; d < rows->dim; ++d) {
              double sum = 0;
              for (std::size_t t = first; t < end; ++t) sum += double{(*all)[evicted[t]][d]};
              EXPECT_NEAR(row[d], sum / double(end - first), 0.03);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(means, 8U);
  cache.save(dir / "kept.cache", "");
  Cache loaded = Cache::load(dir / "kept.cache");
  EXPECT_EQ(loaded.bytes().used(), cache.bytes().used());
  EXPECT_TRUE(same_bits(feed(cache, r.again, 0, 20, 5), feed(loaded, r.again, 0, 20, 7)));
}

TEST(Replay, AStreamHasNoMeans) {
  const Policy policy = Policy::parse("replay:bytes=1/8,means=0.2");
  for (const Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    const std::vector<Tier> tiers = replay_tiers(policy, protocol, 16, 24);
    EXPECT_EQ(means_of(policy, protocol, tiers).part, protocol == Protocol::prefill ? 0.2 : 0);
  }
}

TEST(Replay, OutputsAreAttentionAndNothingIsKept) {
  const Reading r;
  Cache cache = r.read("replay:bytes=1/4"), plain(r.text.shape, replaying("exact"));
  feed(plain, r.text, 0, kText, 50);
  const Matrix out = r.replay(cache);
  EXPECT_EQ(cache.tokens(), kText);
  EXPECT_EQ(cache.entries(1), kText);
  // The second part does not see the first.
  Cache first = fork_of(plain, Policy(), 0), second = fork_of(plain, Policy(), 0);
  const Matrix a = feed(first, r.again, 0, kAgain, kAgain);
  const Matrix b = feed(second, r.again, kAgain, 2 * kAgain, kAgain);
  for (std::size_t t = 0; t < kAgain; ++t) {
    for (std::size_t c = 0; c < a.cols(); ++c) {  // the sums are made in another order
      EXPECT_NEAR(out[t][c], a[t][c], 1e-5) << t;
      EXPECT_NEAR(out[kAgain + t][c], b[t][c], 1e-5) << t;
    }
  }
}

TEST(Replay, HoldsItsBudgetForEverySize) {
  const Reading r;
  const std::size_t exact = kText * 2 * 2 * (16 + 24) * 2;
  for (const std::string tiers :
       {"int8+int4", "bf16+int8+int4", "int4", "f32", "int8+q4+q4/q2+q2", "q3"}) {
    for (double share : {0.5, 0.35, 0.25}) {
      const Cache cache =
          r.compressed(fmt::format("replay:bytes={},tiers={},sink=1,window=2", share, tiers));
      EXPECT_LE(cache.bytes().used(), share * exact) << tiers;
      // An entry less, and the means of heads that keep no rotated row.
      const double means = tiers.find('q') == std::string::npos ? 0 : 4 * (16 + 24) * 4;
      if (tiers != "q3") {  // all entries take less than the budget
        EXPECT_GE(cache.bytes().used(), share * exact - 260 - means) << tiers;
      }
      EXPECT_EQ(cache.tokens(), kText);
      for (std::size_t l = 0; l < 2; ++l) {
        for (std::size_t h = 0; h < 2; ++h) {
          std::vector<Position> kept;
          for (const KeptEntry& entry : cache.kept(l, h)) kept.push_back(entry.position);
          EXPECT_TRUE(std::ranges::includes(kept, std::vector<Position>{0, 88, 89}));
        }
      }
    }
  }
}

TEST(Replay, KeepsTheBestScores) {
  const Reading r;
  Cache cache = r.read("replay:bytes=1/4,sink=0,window=0,tiers=int8");
  r.replay(cache);
  std::vector<float> kept, dropped;
  std::vector<std::vector<float>> scores;
  for (std::size_t l = 0; l < 2; ++l) {
    for (std::size_t h = 0; h < 2; ++h) {
      const auto s = scoring_of(cache).scores(l, h);
      scores.emplace_back(s.begin(), s.end());
    }
  }
  cache.finish_prompt();
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<bool> in(kText);
    for (const KeptEntry& entry : cache.kept(i / 2, i % 2)) in[std::size_t(entry.position)] = true;
    for (std::size_t j = 0; j < kText; ++j) (in[j] ? kept : dropped).push_back(scores[i][j]);
  }
  EXPECT_GT(std::ranges::min(kept), std::ranges::max(dropped));
}

// The best scores of all layers and heads, at full precision, whatever the head; first tokens stay.
TEST(KvZip, OneThresholdOverAllHeads) {
  const Reading r;
  for (const std::string method : {"kvzip", "kvzip-plus"}) {
    for (std::size_t entries : {16u, 17u, 61u, 200u}) {         // of 2 layers × 2 heads × 90
      const std::size_t bytes = entries * (2 * (16 + 24) + 1);  // and where it stands
      Cache cache = r.read(fmt::format("{}:bytes={}B", method, bytes));
      r.replay(cache);
      std::vector<std::pair<double, std::size_t>> ranked;
      for (std::size_t i = 0; i < 4 * kText; ++i) {
        const std::size_t j = i % kText;
        const double score = scoring_of(cache).scores(i / kText / 2, i / kText % 2)[j];
        ranked.push_back({j < 4 ? 1e9 : score, i});
      }
      std::ranges::sort(ranked, std::greater());
      std::vector<std::size_t> want, got;
      for (std::size_t i = 0; i < entries; ++i) want.push_back(ranked[i].second);
      std::ranges::sort(want);
      cache.finish_prompt();
      for (std::size_t h = 0; h < 4; ++h) {
        for (const KeptEntry& entry : cache.kept(h / 2, h % 2))
          got.push_back(h * kText + std::size_t(entry.position));
      }
      EXPECT_EQ(got, want) << method << " " << entries;
      EXPECT_LE(cache.bytes().used(), bytes);
    }
  }
}

TEST(KvZip, GoesOnFromAFile) {
  const TempDir dir;
  const Reading r;
  for (const char* method : {"kvzip:bytes=0.3", "kvzip-plus:bytes=0.3"}) {
    Cache cache = r.compressed(method);
    cache.save(dir / "kept.cache", "");
    Cache loaded = Cache::load(dir / "kept.cache");
    EXPECT_TRUE(
        same_bits(feed(cache, r.again, 0, 2 * kAgain, 5), feed(loaded, r.again, 0, 2 * kAgain, 7)));
  }
}

TEST(Replay, DoesNotDependOnThreads) {
  const Reading r;
  const int before = threads();
  std::vector<std::byte> first;
  for (int count : {1, 2, 8}) {
    set_threads(count);
    const std::vector<std::byte> bytes = r.compressed("replay:bytes=0.3").to_bytes();
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << count;
  }
  set_threads(before);
}

TEST(Replay, GoesOnFromAFile) {
  const TempDir dir;
  const Reading r;
  Cache cache = r.compressed("replay:bytes=0.3");
  cache.save(dir / "kept.cache", "note");
  Cache loaded = Cache::load(dir / "kept.cache");
  EXPECT_EQ(loaded.bytes().used(), cache.bytes().used());
  const Matrix a = feed(cache, r.again, 0, 2 * kAgain, 5),
               b = feed(loaded, r.again, 0, 2 * kAgain, 7);
  EXPECT_TRUE(same_bits(a, b));
  EXPECT_EQ(cache.entries(0), loaded.entries(0));
}

TEST(Replay, AFileWhoseEntriesBeginBeforeTheTextIsRefused) {
  const Reading r;
  const Cache cache = r.compressed("replay:bytes=0.3");
  std::string bytes = [&] {
    const std::vector<std::byte> all = cache.to_bytes();
    return std::string(reinterpret_cast<const char*>(all.data()), all.size());
  }();
  // The positions of the tier with the head's first entry: their number, and rising from that one.
  const auto kept = cache.kept(0, 0);
  const Position first = std::ranges::min(kept, {}, &KeptEntry::position).position;
  const auto is_tier = [&](std::size_t at) {
    std::uint64_t count = 0;
    std::memcpy(&count, bytes.data() + at, sizeof(count));
    if (count < 2 || count > kept.size() || at + 8 + 4 * count > bytes.size()) return false;
    std::vector<Position> positions(count);
    std::memcpy(positions.data(), bytes.data() + at + 8, 4 * count);
    return positions[0] == first && std::ranges::is_sorted(positions);
  };
  std::size_t at = 0;
  while (at + 16 < bytes.size() && !is_tier(at)) ++at;
  ASSERT_LT(at + 16, bytes.size());
  const Position before_the_text = -1;
  std::memcpy(bytes.data() + at + 8, &before_the_text, sizeof(before_the_text));
  seal_saved_cache(bytes);
  const TempDir dir;
  std::ofstream(dir / "bad.cache", std::ios::binary) << bytes;
  EXPECT_THAT(error_of([&] { Cache::load(dir / "bad.cache"); }),
              testing::HasSubstr("position -1 comes after -1"));
}

TEST(Replay, ABudgetOfTheExactCacheIsExact) {
  const Reading r;
  CacheOptions options = replaying("replay:bytes=1.0");
  options.key_type = options.value_type = StorageType::bf16;
  Cache cache(r.text.shape, options), plain(r.text.shape, [&] {
    CacheOptions exact = options;
    exact.policy = Policy();
    return exact;
  }());
  feed(cache, r.text, 0, kText, 50);
  feed(plain, r.text, 0, kText, 50);
  EXPECT_FALSE(scoring_of(cache).needs_replay());
  cache.finish_prompt();
  EXPECT_TRUE(same_bits(feed(cache, r.again, 0, 9, 4), feed(plain, r.again, 0, 9, 4)));
}

TEST(Replay, ForksShareOneReading) {
  const Reading r;
  CacheOptions options = replaying("exact");
  options.recording.include(Policy::parse("replay:bytes=1/8"));
  EXPECT_EQ(options.recording.replay, ReplayScore::max);
  Cache cache(r.text.shape, options);
  feed(cache, r.text, 0, kText, 32);
  EXPECT_TRUE(scoring_of(cache).needs_replay());
  r.replay(cache);
  EXPECT_FALSE(scoring_of(cache).needs_replay());
  for (const char* method : {"replay:bytes=0.3", "replay:bytes=0.5,tiers=int4"}) {
    Cache fork = fork_of(cache, Policy::parse(method), 0);
    fork.finish_prompt();
    Cache alone = r.compressed(method);
    EXPECT_TRUE(same_bits(feed(fork, r.again, 0, 20, 20), feed(alone, r.again, 0, 20, 20)));
  }
  EXPECT_THAT(error_of([&] { fork_of(cache, Policy::parse("replay:bytes=1/8,score=rms"), 0); }),
              testing::HasSubstr("another replay pass"));
}

TEST(Replay, ACopyOfOneReadingIsScoredInAnotherWay) {
  const Reading r;
  CacheOptions options = replaying("exact");
  options.recording.include_attention(Policy::parse("h2o:budget=8"));
  Cache cache(r.text.shape, options);
  feed(cache, r.text, 0, kText, 32);
  EXPECT_FALSE(scoring_of(cache).needs_replay());
  for (const char* method : {"replay:bytes=0.3", "replay:bytes=0.3,score=rms"}) {
    Recording recording = options.recording;
    recording.include(Policy::parse(method));
    Cache scored = fork_of(cache, recording);
    EXPECT_TRUE(scoring_of(scored).needs_replay());
    r.replay(scored);
    Cache fork = fork_of(scored, Policy::parse(method), 0);
    fork.finish_prompt();
    Cache alone = r.compressed(method);
    EXPECT_TRUE(same_bits(feed(fork, r.again, 0, 20, 20), feed(alone, r.again, 0, 20, 20)));
  }
  options.recording.queries = 8;  // were not noted
  EXPECT_THROW(fork_of(cache, options.recording), Error);
  options.recording.replay = ReplayScore::given;
  EXPECT_THROW(fork_of(cache, options.recording), Error);
}

TEST(Replay, AReadingThatWasNotCompletedIsForgotten) {
  const Reading r;
  Cache cache = r.read("replay:bytes=0.3");
  r.replay(cache);
  EXPECT_FALSE(scoring_of(cache).needs_replay());
  scoring_of(cache).discard_replay();
  EXPECT_TRUE(scoring_of(cache).needs_replay());
}

TEST(Replay, AnotherReadingLeavesTheScoresOfAForkAlone) {
  const Reading r;
  Cache cache = r.read("replay:bytes=0.3");
  r.replay(cache);
  const auto scores = [](const Cache& c) {
    const std::span<const float> s = scoring_of(c).scores(1, 1);
    return std::vector<float>(s.begin(), s.end());
  };
  const Cache copy = cache.clone();
  const std::vector<float> before = scores(copy);
  Matrix out(kAgain, 4 * 24);
  EXPECT_THAT(error_of([&] {
                scoring_of(cache).replay(0, r.again.keys[0].view().slice(0, kAgain),
                                         r.again.values[0].view().slice(0, kAgain),
                                         r.again.queries[0].view().slice(0, kAgain), {},
                                         out.view());
              }),
              testing::HasSubstr("shares the scores"));
  r.replay(cache, true);  // other output projections: other scores
  EXPECT_EQ(scores(copy), before);
  EXPECT_NE(scores(cache), before);
}

TEST(Replay, SaysWhatIsWrong) {
  const Reading r;
  Cache cache = r.read("replay:bytes=1/8");
  EXPECT_THAT(error_of([&] { cache.finish_prompt(); }), testing::HasSubstr("replay pass"));
  EXPECT_THAT(error_of([&] { cache.finish_prompt(0); }), testing::HasSubstr("together"));
  EXPECT_THAT(error_of([&] { scoring_of(cache).start_replay(0, r.text.keys[0].view()); }),
              testing::HasSubstr("96 × 24"));
  Cache small = r.read("replay:bytes=100B");
  r.replay(small);
  EXPECT_THAT(error_of([&] { small.finish_prompt(); }), testing::HasSubstr("give at least"));
  Cache exact(r.text.shape, replaying("exact"));
  EXPECT_THAT(error_of([&] { scoring_of(exact).start_replay(0, {}); }),
              testing::HasSubstr("no use"));
  for (const char* text : {"replay", "replay:rate=0.5,bytes=1/8", "replay:budget=100"}) {
    EXPECT_THAT(error_of([&] { r.read(text); }), testing::HasSubstr("bytes=1/8")) << text;
  }
  CacheOptions rolling = replaying("replay:bytes=1/8");
  rolling.positions = Positions::rolling;
  EXPECT_THAT(error_of([&] { Cache(r.text.shape, rolling); }), testing::HasSubstr("absolute"));
}

}  // namespace
}  // namespace ballast::test
