// Random tokens that leave the window, and check_contract(): what Summary promises, for any method.
// Needs GoogleTest.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ballast/attention.h"
#include "ballast/serialize.h"
#include "ballast/summary.h"
#include "ballast/testing/support.h"

namespace ballast::test {

/// Tokens of one head that leave the window, and the attention they received, from all queries as
/// from the last ones. The stream is what its blocks have observed.
struct HeadStream : Observed {
  HeadStream(Matrix keys, Matrix values, Position first)
      : keys(std::move(keys)),
        values(std::move(values)),
        attention_sum(this->keys.rows()),
        first(first) {}
  std::span<const float> held_attention() const override { return held; }
  std::span<const float> attention(Position from, std::size_t count) const override {
    return std::span(attention_sum).subspan(static_cast<std::size_t>(from - first), count);
  }
  ConstMatrix queries() const override { return asked; }
  std::span<const Position> query_positions() const override { return asked_at; }
  const QueryMoments* query_moments() const override { return moments; }
  const ValueNorms* value_norms() const override { return norms; }

  Matrix keys;
  Matrix values;
  std::vector<float> attention_sum;
  Position first = 0;
  std::vector<float> held;  ///< what a summary's entries receive next
  ConstMatrix asked = {};
  std::span<const Position> asked_at;
  const QueryMoments* moments = nullptr;
  const ValueNorms* norms = nullptr;

  std::size_t size() const { return keys.rows(); }
  Block block(std::size_t begin, std::size_t count) const {
    Block b;
    b.keys = view_f32(keys.view().slice(begin, count));
    b.values = view_f32(values.view().slice(begin, count));
    b.first = first + static_cast<Position>(begin);
    b.now = b.first + static_cast<Position>(count) + 3;
    b.attention_sum = std::span(attention_sum).subspan(begin, count);
    b.observed = this;
    return b;
  }
};

inline HeadStream random_stream(std::size_t n, std::size_t dim, std::uint64_t seed,
                                Position first = 0) {
  HeadStream s(random_matrix(n, dim, seed), random_matrix(n, dim, seed + 1), first);
  std::mt19937_64 rng(seed + 2);
  std::gamma_distribution<float> gamma(0.3f, 1.0f);
  for (float& m : s.attention_sum) m = gamma(rng);
  return s;
}

inline SummarySetup setup_of(const std::string& method, std::size_t capacity, std::size_t dim,
                             Protocol protocol = Protocol::stream, std::size_t tokens = 0,
                             std::uint64_t seed = 1) {
  SummarySetup s;
  s.policy = Policy::parse(method);
  s.protocol = protocol;
  s.capacity = capacity;
  s.tokens = tokens;
  s.key_dim = dim;
  s.value_dim = dim;
  s.logits.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  s.random = {seed, 2, 3};
  return s;
}

inline std::vector<Segment> segments_of(const Summary& summary) {
  std::vector<Segment> out;
  summary.segments(out);
  return out;
}

/// How many entries observe() would be told of.
inline std::size_t segment_entries(const Summary& summary) {
  std::size_t n = 0;
  for (const Segment& s : segments_of(summary)) n += s.keys.rows;
  return n;
}

/// Absorbs everything in blocks of random sizes up to `largest`.
inline void absorb_in_pieces(Summary& summary, const HeadStream& stream, std::size_t largest,
                             std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  for (std::size_t done = 0; done < stream.size();) {
    std::size_t count = std::min(stream.size() - done, 1 + rng() % largest);
    summary.absorb(stream.block(done, count));
    done += count;
  }
}

inline std::vector<KeptEntry> sorted_kept(const Summary& summary) {
  auto kept = summary.kept();
  std::ranges::sort(kept, [](const KeptEntry& a, const KeptEntry& b) {
    return std::tuple(a.position, a.weight, a.normaliser_weight) <
           std::tuple(b.position, b.weight, b.normaliser_weight);
  });
  return kept;
}

inline std::vector<Position> kept_positions(const Summary& summary) {
  std::vector<Position> out;
  for (const KeptEntry& e : sorted_kept(summary)) out.push_back(e.position);
  return out;
}

inline void expect_same_kept(const Summary& a, const Summary& b) {
  const auto ka = sorted_kept(a);
  const auto kb = sorted_kept(b);
  ASSERT_EQ(ka.size(), kb.size());
  for (std::size_t i = 0; i < ka.size(); ++i) {
    ASSERT_EQ(ka[i].position, kb[i].position) << "entry " << i;
    ASSERT_FLOAT_EQ(ka[i].weight, kb[i].weight) << "entry " << i;
    ASSERT_FLOAT_EQ(ka[i].normaliser_weight, kb[i].normaliser_weight) << "entry " << i;
  }
}

/// Numerator (dim numbers) and normaliser of the estimate for one query, in float64, unnormalised.
struct Sums {
  std::vector<double> numerator;
  double normaliser = 0;
};

inline Sums sums_of(const std::vector<Segment>& segments, std::span<const float> query,
                    double scale) {
  Sums sums;
  sums.numerator.assign(query.size(), 0.0);
  std::vector<float> row(query.size());
  for (const Segment& s : segments) {
    for (std::size_t i = 0; i < s.keys.rows; ++i) {
      s.keys.decode(i, row);
      double dot = 0;
      for (std::size_t c = 0; c < query.size(); ++c) dot += double{row[c]} * query[c];
      const double e = std::exp(dot * scale + (s.log_weights ? s.log_weights[i] : 0.0));
      if (s.role != Role::numerator) sums.normaliser += e;
      if (s.role == Role::normaliser) continue;
      s.values.decode(i, row);
      for (std::size_t c = 0; c < query.size(); ++c) sums.numerator[c] += e * row[c];
    }
  }
  return sums;
}

/// The same over all tokens of the stream.
inline Sums exact_sums(const HeadStream& stream, std::span<const float> query, double scale) {
  Segment all;
  all.keys = view_f32(stream.keys.view());
  all.values = view_f32(stream.values.view());
  return sums_of({all}, query, scale);
}

inline std::vector<std::byte> saved(const Summary& summary) {
  MemoryWriter out;
  summary.save(out);
  return out.bytes;
}

/// The promises of Summary that hold for every method: see summary.h.
struct Contract {
  std::string method;        ///< a method string without a budget
  bool any_chunking = true;  ///< the result does not depend on the blocks (no observe between)
  bool exact_if_it_fits = true;
  std::size_t tokens = 1600;  ///< that budgets are watched for
};

inline void expect_finite_attention(const Summary& summary, const SummarySetup& setup) {
  const auto segments = segments_of(summary);
  for (const Segment& s : segments) {
    for (std::size_t i = 0; s.log_weights != nullptr && i < s.keys.rows; ++i) {
      ASSERT_FALSE(std::isnan(s.log_weights[i]));
    }
  }
  Matrix queries = random_matrix(3, setup.key_dim, 99);
  Matrix out(3, setup.value_dim);
  attend({queries.view(), {}, {}}, segments, setup.logits, out.view());
  for (std::size_t i = 0; i < 3 * setup.value_dim; ++i) ASSERT_TRUE(std::isfinite(out.data()[i]));
}

inline void observe_random(Summary& summary, const SummarySetup& setup, std::mt19937_64& rng) {
  HeadStream seen({}, {}, 0);
  seen.held.resize(segment_entries(summary));
  for (float& m : seen.held) m = static_cast<float>(rng() % 1000) / 1000.0f;
  const Needs needs = setup.policy.needs();
  if (needs.attention_sums) summary.observe(seen.held);
  if (needs.recent_queries) summary.observe_recent(seen);
}

/// Budgets hold and bytes stay, whatever the blocks.
inline void check_budget(const Contract& contract) {
  std::mt19937_64 rng(7);
  for (std::size_t capacity : {0u, 1u, 2u, 3u, 17u, 64u, 300u}) {
    for (std::size_t first : {0u, 1u, 5u, 400u}) {
      auto setup = setup_of(contract.method, capacity, 8);
      auto summary = make_summary(setup);
      const HeadStream stream = random_stream(contract.tokens, 8, capacity + first);
      const std::size_t bytes = summary->bytes();
      for (std::size_t done = 0; done < stream.size();) {
        std::size_t count = done == 0 && first != 0 ? first : 1 + rng() % (rng() % 4 ? 3 : 90);
        count = std::min(count, stream.size() - done);
        observe_random(*summary, setup, rng);
        summary->absorb(stream.block(done, count));
        done += count;
        ASSERT_LE(summary->entries(), capacity);
        ASSERT_EQ(summary->bytes(), bytes) << "after " << done << " tokens";
      }
      if (capacity > 1) expect_finite_attention(*summary, setup);
      for (const KeptEntry& e : summary->kept()) {
        ASSERT_GE(e.position, 0);
        ASSERT_LT(e.position, static_cast<Position>(contract.tokens));
        ASSERT_TRUE(std::isfinite(e.weight) && std::isfinite(e.normaliser_weight));
      }
    }
  }
}

/// Where everything fits, the summary is the tokens themselves.
inline void check_exact(const Contract& contract) {
  for (std::size_t n : {0u, 1u, 2u, 31u, 64u}) {
    for (std::size_t tokens : {n, std::size_t{0}}) {
      for (std::size_t capacity : {n, n + 5}) {
        auto setup = setup_of(contract.method, capacity, 8, Protocol::prefill, tokens);
        auto summary = make_summary(setup);
        const HeadStream stream = random_stream(n, 8, n);
        absorb_in_pieces(*summary, stream, 1 + n, n);
        const auto kept = sorted_kept(*summary);
        ASSERT_EQ(kept.size(), n);
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(kept[i].position, static_cast<Position>(i));
          ASSERT_EQ(kept[i].weight, 1.0f);
          ASSERT_EQ(kept[i].normaliser_weight, 1.0f);
        }
        const Matrix q = random_matrix(1, 8, 5);
        const Sums a = sums_of(segments_of(*summary), q[0], setup.logits.scale);
        const Sums b = exact_sums(stream, q[0], setup.logits.scale);
        ASSERT_NEAR(a.normaliser, b.normaliser, 1e-9 * (1 + b.normaliser));
        for (std::size_t c = 0; c < 8; ++c) ASSERT_NEAR(a.numerator[c], b.numerator[c], 1e-6);
      }
    }
  }
}

inline void check_chunking(const Contract& contract) {
  for (std::size_t capacity : {1u, 16u, 50u, 300u}) {
    for (std::size_t tokens : {0u, 900u}) {
      auto setup = setup_of(contract.method, capacity, 8, Protocol::stream, tokens);
      const HeadStream stream = random_stream(900, 8, capacity);
      auto whole = make_summary(setup);
      whole->absorb(stream.block(0, stream.size()));
      for (std::size_t largest : {1u, 7u, 400u}) {
        auto pieces = make_summary(setup);
        absorb_in_pieces(*pieces, stream, largest, largest);
        expect_same_kept(*whole, *pieces);
      }
    }
  }
}

/// What was saved continues as if nothing had happened; what was damaged is refused.
inline void check_saving(const Contract& contract) {
  auto setup = setup_of(contract.method, 24, 8);
  auto original = make_summary(setup);
  const HeadStream stream = random_stream(400, 8, 3);
  std::mt19937_64 rng(3);
  original->absorb(stream.block(0, 150));
  observe_random(*original, setup, rng);
  const auto bytes = saved(*original);
  auto copy = make_summary(setup);
  ByteReader in(bytes);
  copy->load(in);
  EXPECT_EQ(in.left(), 0u);
  EXPECT_EQ(saved(*copy), bytes);
  EXPECT_EQ(copy->bytes(), original->bytes());
  for (std::size_t at = 150; at < 400; at += 10) {
    original->absorb(stream.block(at, 10));
    copy->absorb(stream.block(at, 10));
  }
  EXPECT_EQ(saved(*copy), saved(*original));

  for (std::size_t cut = 0; cut < bytes.size(); cut += 1 + cut / 20) {
    auto other = make_summary(setup);
    ByteReader damaged(std::span<const std::byte>(bytes).first(cut));
    EXPECT_THROW(other->load(damaged), Error) << "cut at " << cut;
  }
  for (int trial = 0; trial < 300; ++trial) {
    auto changed = bytes;
    changed[rng() % changed.size()] ^= static_cast<std::byte>(1u << rng() % 8);
    auto other = make_summary(setup);
    ByteReader damaged(changed);
    try {
      other->load(damaged);
    } catch (const Error&) {
      continue;
    }
    // A change that no check can see leaves a summary that works.
    EXPECT_LE(other->entries(), setup.capacity);
    observe_random(*other, setup, rng);
    other->absorb(stream.block(150, 100));
    EXPECT_LE(other->entries(), setup.capacity);
  }
}

inline void check_contract(const Contract& contract) {
  SCOPED_TRACE(contract.method);
  check_budget(contract);
  if (contract.exact_if_it_fits) check_exact(contract);
  if (contract.any_chunking) check_chunking(contract);
  check_saving(contract);
}

}  // namespace ballast::test
