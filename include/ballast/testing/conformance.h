// What every method owes its users, whatever it does inside. Include it in one source file of a
// test program that links GoogleTest's main, and name your method:
//
//   namespace ballast::test {
//   INSTANTIATE_TEST_SUITE_P(KeyNorm, EveryMethod,
//                            testing::ValuesIn(conformance_cases({"key-norm"})), conformance_name);
//   }
//
// summary_contract.h has the other half: check_contract().
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "ballast/scoring.h"
#include "ballast/testing/streams.h"
#include "ballast/threads.h"

namespace ballast::test {

struct ConformanceCase {
  std::string method;  ///< its name
  Protocol protocol;
};

inline std::ostream& operator<<(std::ostream& out, const ConformanceCase& c) {
  return out << c.method << " in " << to_string(c.protocol);
}

/// Tokens of the text of every case.
inline constexpr std::size_t kConformanceTokens = 420;

/// A global budget holds the whole text as it is, or as many entries of 8 bits.
inline std::string with_budget(const ConformanceCase& c, std::size_t budget) {
  if (c.method == "exact") return c.method;
  if (!Policy::parse(c.method).info().global_budget) {
    return c.method + ":budget=" + std::to_string(budget);
  }
  const std::size_t element = budget < kConformanceTokens ? 1 : sizeof(float);
  return c.method + ":chunk=20,bytes=" + std::to_string(budget * 2 * 2 * (16 + 24) * element) + "B";
}

class EveryMethod : public testing::TestWithParam<ConformanceCase> {
 protected:
  static constexpr std::size_t kTokens = kConformanceTokens;
  static constexpr std::size_t kBudget = 128;
  std::size_t prompt() const { return 300; }

  Cache cache(std::size_t budget, std::size_t expected = 0) const {
    return Cache(stream_.shape,
                 options_of(with_budget(GetParam(), budget), GetParam().protocol, expected));
  }
  Matrix run(Cache& cache, std::size_t chunk) const {
    return read(cache, stream_, 0, kTokens, chunk, prompt());
  }
  bool is_exact() const { return GetParam().method == "exact"; }
  bool is_global() const { return Policy::parse(GetParam().method).info().global_budget; }
  /// Where an entry of a segment stands in the text.
  static Position place(const Segment& s, std::size_t i) {
    if (s.positions != nullptr) return s.positions[i];
    return s.keys.gaps != nullptr ? s.keys.position(i) : s.first_position + Position(i);
  }
  bool keeps_generated() const {
    return GetParam().protocol == Protocol::prefill &&
           Policy::parse(GetParam().method).keeps_generated();
  }

  Stream stream_ = make_stream(kTokens, 11);
};

TEST_P(EveryMethod, BudgetOfTheWholeTextIsExact) {
  Cache exact(stream_.shape, options_of("exact", GetParam().protocol));
  Matrix expected = run(exact, 64);
  for (std::size_t length : {std::size_t{0}, kTokens}) {
    // A pyramid gives the upper layers less unless it knows that the text ends.
    if (length == 0 && Policy::parse(GetParam().method).info().pyramid) continue;
    Cache all = cache(kTokens, length);
    EXPECT_TRUE(same_bits(run(all, 64), expected)) << "expected_tokens=" << length;
  }
}

TEST_P(EveryMethod, HoldsItsBudgetAtEveryToken) {
  if (is_exact()) GTEST_SKIP() << "exact has no budget";
  Cache c = cache(kBudget);
  // A promise in bytes too: never more than a fixed amount, which is about that of the entries.
  const std::size_t entry = 2 * 2 * (16 + 24) * sizeof(float);
  const std::size_t promised = kBudget * entry * 5 / 2;
  for (std::size_t t = 0; t < kTokens; ++t) {
    read(c, stream_, t, t + 1, 1, prompt());
    const bool reading = GetParam().protocol == Protocol::prefill && t + 1 < prompt();
    const std::size_t grown = keeps_generated() && t >= prompt() ? t + 1 - prompt() : 0;
    if (reading) continue;
    if (is_global()) {
      const std::size_t later = grown + scoring_of(c).chunk_tokens();
      ASSERT_LE(c.bytes().used() - c.bytes().attention_stats,
                (GetParam().protocol == Protocol::stream ? kBudget * entry : kBudget * entry / 4) +
                    later * entry)
          << "token " << t;
    } else if (c.entries(0) + c.entries(1) > 2 * (kBudget + grown)) {
      // Heads may divide what is theirs together.
      std::size_t held = 0;
      for (std::size_t i = 0; i < 4; ++i) held += c.kept(i / 2, i % 2).size();
      ASSERT_LE(held, 4 * (kBudget + grown)) << "token " << t;
    }
    if (GetParam().protocol == Protocol::stream) {
      ASSERT_LE(c.bytes().total(), promised) << "token " << t;
    }
  }
}

TEST_P(EveryMethod, ResultDoesNotDependOnChunksOrThreads) {
  Cache one = cache(kBudget), other = cache(kBudget), third = cache(kBudget);
  Matrix by_one = run(one, 1);
  EXPECT_TRUE(same_bits(run(other, 37), by_one));
  const int before = threads();
  set_threads(before == 1 ? 3 : 1);
  EXPECT_TRUE(same_bits(run(third, kTokens), by_one));
  set_threads(before);
}

// What kept() reports is what attention uses: the naive sum over the reported entries, taken from
// the original rows, is the cache's answer.
TEST_P(EveryMethod, KeptEntriesExplainTheAnswer) {
  Cache c = cache(kBudget);
  Matrix out = run(c, 50);
  const std::size_t last = kTokens - 1;
  for (std::size_t head = 0; head < 2; ++head) {
    std::vector<PlainEntry> entries;
    // Methods that want queries may fit values to them, those with a global budget round rows.
    std::map<Position, std::vector<float>> fitted, rounded;
    for (const Segment& s : c.segments(1, head)) {
      for (std::size_t i = 0; is_global() && i < s.keys.rows; ++i) {
        std::vector<float>& key = rounded[place(s, i)];
        key.resize(16);
        s.keys.decode(i, key);
      }
    }
    if (is_global() || Policy::parse(GetParam().method).needs().fits_values) {
      for (const Segment& s : c.segments(1, head)) {
        for (std::size_t i = 0; i < s.values.rows; ++i) {
          std::vector<float>& value = fitted[place(s, i)];
          value.resize(24);
          s.values.decode(i, value);
        }
      }
    }
    Position before = -1;
    for (const KeptEntry& kept : c.kept(1, head)) {
      ASSERT_GE(kept.position, before);
      before = kept.position;
      ASSERT_LT(kept.position, static_cast<Position>(kTokens));
      auto t = static_cast<std::size_t>(kept.position);
      std::span<const float> key = stream_.keys[1][t].subspan(head * 16, 16);
      if (rounded.contains(kept.position)) key = rounded[kept.position];
      std::span<const float> value = stream_.values[1][t].subspan(head * 24, 24);
      if (fitted.contains(kept.position)) value = fitted[kept.position];
      entries.push_back({{key.begin(), key.end()},
                         {value.begin(), value.end()},
                         kept.weight,
                         kept.normaliser_weight});
    }
    for (std::size_t g = 0; g < 2; ++g) {
      const std::size_t q = head * 2 + g;
      auto expected = naive_attention(entries, stream_.queries[1][last].subspan(q * 16, 16), 0.25);
      // Rows of types that processors multiply round queries, too.
      EXPECT_LT(relative_error(out[last].subspan(q * 24, 24), expected), is_global() ? 3e-2 : 2e-5);
    }
  }
}

// Many methods are compared on one reading of a prompt.
TEST_P(EveryMethod, ForkOfAnExactPromptIsAsIfItHadReadThePromptItself) {
  if (GetParam().protocol == Protocol::stream) GTEST_SKIP() << "a stream is not exact in between";
  const Policy policy = Policy::parse(with_budget(GetParam(), kBudget));
  CacheOptions noting = options_of("exact", Protocol::prefill);
  noting.recording.queries = 70;  // more than any method watches by default
  noting.recording.include(policy);
  noting.recording.include(Policy::parse("h2o:budget=128"));
  Cache reader(stream_.shape, noting);
  read(reader, stream_, 0, prompt(), 64);
  if (scoring_of(reader).needs_replay()) replay(reader, stream_, prompt());
  Cache own = cache(kBudget), fork = fork_of(reader, policy, own.options().seed);
  Matrix expected = run(own, 64);
  fork.finish_prompt();
  Matrix rest = read(fork, stream_, prompt(), kTokens, 64);
  for (std::size_t t = prompt(); t < kTokens; ++t) {
    ASSERT_TRUE(std::ranges::equal(rest[t - prompt()], expected[t])) << "token " << t;
  }
  EXPECT_EQ(fork.entries(), own.entries());
}

TEST_P(EveryMethod, GoesOnAfterSaveAndLoadAsIfNothingHadHappened) {
  for (std::size_t cut : {std::size_t{20}, std::size_t{310}, std::size_t{411}}) {
    Cache c = cache(kBudget);
    read(c, stream_, 0, cut, 64, prompt());
    const auto path =
        std::filesystem::path(testing::TempDir()) /
        ("cache-" + std::to_string(std::random_device()()) + GetParam().method + ".bin");
    c.save(path, "a note");
    std::string note;
    Cache restored = Cache::load(path, &note);
    std::filesystem::remove(path);
    EXPECT_EQ(note, "a note");
    EXPECT_EQ(restored.entries(), c.entries());
    Matrix expected = read(c, stream_, cut, kTokens, 64, prompt());
    EXPECT_TRUE(same_bits(read(restored, stream_, cut, kTokens, 64, prompt()), expected)) << cut;
  }
}

TEST_P(EveryMethod, GoesOnAfterSaveAndLoadInFewBits) {
  CacheOptions options = options_of(with_budget(GetParam(), kBudget), GetParam().protocol);
  options.key_type = StorageType::q4;
  options.value_type = StorageType::q2;
  Cache c(stream_.shape, options);
  read(c, stream_, 0, 310, 64, prompt());
  Cache restored = Cache::parse(c.to_bytes(), "");
  const Matrix expected = read(c, stream_, 310, kTokens, 64, prompt());
  EXPECT_TRUE(same_bits(read(restored, stream_, 310, kTokens, 64, prompt()), expected));
}

TEST_P(EveryMethod, ACloneGoesOnAndLeavesTheOriginalAsItWas) {
  for (std::size_t cut : {std::size_t{0}, std::size_t{20}, std::size_t{310}, std::size_t{411}}) {
    Cache c = cache(kBudget), same = cache(kBudget);
    read(c, stream_, 0, cut, 64, prompt());
    read(same, stream_, 0, cut, 64, prompt());
    Cache clone = c.clone();
    EXPECT_EQ(clone.to_bytes(), Cache::parse(c.to_bytes(), "").to_bytes()) << cut;
    EXPECT_EQ(clone.bytes().used(), Cache::parse(c.to_bytes(), "").bytes().used()) << cut;
    Matrix expected = read(same, stream_, cut, kTokens, 64, prompt());
    EXPECT_TRUE(same_bits(read(clone, stream_, cut, kTokens, 64, prompt()), expected)) << cut;
    EXPECT_TRUE(same_bits(read(c, stream_, cut, kTokens, 64, prompt()), expected)) << cut;
  }
}

TEST_P(EveryMethod, HugeAndZeroNumbersGiveFiniteAnswers) {
  for (float size : {0.0f, 1e-30f, 300.0f, 1e4f}) {
    Stream s = make_stream(kTokens, 5, size);
    Cache c(s.shape, options_of(with_budget(GetParam(), kBudget), GetParam().protocol));
    const Matrix out = read(c, s, 0, kTokens, 64, prompt());
    for (std::size_t i = 0; i < out.rows() * out.cols(); ++i) {
      ASSERT_TRUE(std::isfinite(out.data()[i])) << size;
    }
  }
}

TEST_P(EveryMethod, RefusesNumbersThatAreNotFiniteAndStaysAsItWas) {
  Cache c = cache(kBudget), untouched = cache(kBudget);
  read(c, stream_, 0, 100, 50);
  read(untouched, stream_, 0, 100, 50);
  Stream bad = make_stream(kTokens, 11);
  bad.keys[0][103][17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of([&] { read(c, bad, 100, 110, 10); }),
              testing::AllOf(testing::HasSubstr("keys"), testing::HasSubstr("token 3"),
                             testing::HasSubstr("17"), testing::HasSubstr("nan")));
  bad = make_stream(kTokens, 11);
  bad.queries[0][100][0] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(error_of([&] { read(c, bad, 100, 110, 10); }), testing::HasSubstr("queries"));
  EXPECT_TRUE(same_bits(read(c, stream_, 100, 200, 50), read(untouched, stream_, 100, 200, 50)));
}

TEST_P(EveryMethod, EmptyAndTinyTexts) {
  for (std::size_t tokens : {0, 1, 2, 3}) {
    Cache c = cache(kBudget), exact(stream_.shape, options_of("exact", GetParam().protocol));
    Matrix a = read(c, stream_, 0, tokens, 1), b = read(exact, stream_, 0, tokens, 1);
    c.finish_prompt();
    EXPECT_TRUE(same_bits(a, b));
    EXPECT_EQ(c.entries(), tokens);
    EXPECT_EQ(c.kept(0, 1).size(), tokens);
  }
}

TEST_P(EveryMethod, StorageTypesStayClose) {
  Cache exact32 = cache(kBudget);
  Matrix full = run(exact32, 64);
  for (StorageType type : {StorageType::bf16, StorageType::f16, StorageType::int8, StorageType::q4,
                           StorageType::q3, StorageType::q2}) {
    CacheOptions options = options_of(with_budget(GetParam(), kBudget), GetParam().protocol);
    options.key_type = options.value_type = type;
    Cache c(stream_.shape, options);
    Matrix out = run(c, 64);
    // The first tokens, before anything is chosen, see only the rounding.
    const std::size_t first = is_global() && GetParam().protocol == Protocol::stream ? 20 : 100;
    std::vector<double> expected(full.data(), full.data() + first * full.cols());
    EXPECT_LT(relative_error({out.data(), first * out.cols()}, expected),
              type == StorageType::q4   ? 0.2
              : type == StorageType::q3 ? 0.4
              : type == StorageType::q2 ? 0.7
                                        : 3e-2)
        << to_string(type);
    if (!is_exact()) {
      EXPECT_LT(c.bytes().total(), exact32.bytes().total());
    }
  }
}

// Keys with a bias of norm 300 that rotary positions turn, and a signal of norm 3, as Qwen2 has
// them: what is held of a key errs by a part of the signal. The slowest rotations make in these
// tokens the part of a turn that they make in 8,192 at a base of a million.
TEST_P(EveryMethod, KeysOfFewBitsErrByAPartOfTheirSignalBesideAnyBias) {
  Stream s = make_stream(kTokens, 21);
  for (std::size_t f = 0; f < 8; ++f) {
    s.shape.rotary.frequencies.push_back(
        20.0f * static_cast<float>(std::pow(1e6, -static_cast<double>(f) / 8)));
  }
  const Matrix bias = random_matrix(4, 16, 77);
  for (std::size_t l = 0; l < 2; ++l) {
    s.keys[l] = random_matrix(kTokens, 2 * 16, 31 + l, 0.75f);
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t c = 0; c < 32; ++c) s.keys[l][t][c] += 75.0f * bias[2 * l + c / 16][c % 16];
      for (std::size_t h = 0; h < 2; ++h) {
        for (std::size_t f = 0; f < 8; ++f) {
          float &a = s.keys[l][t][16 * h + f], &b = s.keys[l][t][16 * h + f + 8];
          const double angle = static_cast<double>(t) * double{s.shape.rotary.frequencies[f]};
          const double x = double{a}, y = double{b};
          a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
          b = static_cast<float>(y * std::cos(angle) + x * std::sin(angle));
        }
      }
    }
  }
  struct Few {
    StorageType type;
    double error;  ///< of a key, over its signal, squared
  };
  for (const auto& [type, allowed] : {Few{StorageType::q4, 0.04}, Few{StorageType::q3, 0.08},
                                      Few{StorageType::q2, 0.25}, Few{StorageType::int4, 0.04}}) {
    CacheOptions options = options_of(with_budget(GetParam(), kBudget), GetParam().protocol);
    options.key_type = options.value_type = type;
    Cache c(s.shape, options);
    read(c, s, 0, kTokens, 64, prompt());
    double lost = 0;
    std::size_t entries = 0;
    for (std::size_t head = 0; head < 4; ++head) {
      for (const Segment& part : c.segments(head / 2, head % 2)) {
        for (std::size_t i = 0; i < part.keys.rows; ++i) {
          const Position at = place(part, i);
          std::vector<float> key(16);
          part.keys.decode(i, key);
          for (std::size_t k = 0; k < 16; ++k) {
            const double by =
                double{key[k]} - s.keys[head / 2][std::size_t(at)][16 * (head % 2) + k];
            lost += by * by;
          }
          ++entries;
        }
      }
    }
    // A global budget has types of its own, of 2 bits too.
    EXPECT_LT(lost / static_cast<double>(entries) / 9.0, is_global() ? 0.25 : allowed)
        << to_string(type);
  }
}

/// Each method in both protocols.
inline std::vector<ConformanceCase> conformance_cases(const std::vector<std::string>& methods) {
  std::vector<ConformanceCase> cases;
  for (const std::string& method : methods) {
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      cases.push_back({method, protocol});
    }
  }
  return cases;
}

inline std::string conformance_name(const testing::TestParamInfo<ConformanceCase>& info) {
  std::string name = info.param.method + "_" + std::string(to_string(info.param.protocol));
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace ballast::test
