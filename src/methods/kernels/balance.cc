#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "methods/kernels/balance.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway asks.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/kernels/avx512.h"
#include "ballast/random.h"
#include "methods/kernels/balance.h"
#include "methods/kernels/gram_avx512.h"
#include "simd/prefetch.h"
#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kGroup = BalanceBlock::kGroup;
constexpr std::size_t kVectors = kGroup / kLanes;  // vectors across a group
// Rows and groups of a tile: its sums fill the registers (32 with AVX-512, otherwise 16).
constexpr std::size_t kRows = kLanes == 16 ? 8 : kLanes == 8 ? 4 : 1;
constexpr std::size_t kTile = kLanes == 16 ? 3 : 1;

// Dot products of tokens row .. row + kRows - 1 with those of G groups, into rows of `out`.
template <std::size_t G>
HWY_INLINE void tile(const float* HWY_RESTRICT packed, std::size_t dim, std::size_t row,
                     std::size_t group, float* HWY_RESTRICT out, std::size_t stride) {
  constexpr std::size_t kWide = G * kVectors;
  const FloatTag d;
  const float* HWY_RESTRICT a = packed + row / kGroup * dim * kGroup + row % kGroup;
  const float* HWY_RESTRICT b = packed + group * dim * kGroup;
  const std::size_t group_size = dim * kGroup;
  FloatVec sum[kRows][kWide];
#pragma GCC unroll 8
  for (std::size_t t = 0; t < kRows; ++t) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kWide; ++v) sum[t][v] = hn::Zero(d);
  }
  for (std::size_t c = 0; c < dim; ++c) {
    FloatVec column[kWide];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kWide; ++v) {
      column[v] = hn::Load(d, b + v / kVectors * group_size + c * kGroup + v % kVectors * kLanes);
    }
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kRows; ++t) {
      const auto x = hn::Set(d, a[c * kGroup + t]);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kWide; ++v) sum[t][v] = hn::MulAdd(x, column[v], sum[t][v]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t t = 0; t < kRows; ++t) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kWide; ++v) {
      hn::Store(sum[t][v], d, out + t * stride + group * kGroup + v * kLanes);
    }
  }
}

// Prefetches rows of the next block, a few before each tile: a burst would delay all later loads.
class Prefetcher {
 public:
  Prefetcher(const PrefetchTokens& next, std::size_t tokens) : next_(next) {
    std::size_t tiles = 0;
    for (std::size_t row = 0; row < tokens; row += kRows) tiles += row / kGroup / kTile + 1;
    tokens_per_tile_ = next.rows.size() / std::max<std::size_t>(tiles, 1) + 1;
  }
  HWY_INLINE void fetch() {
    const std::size_t end = std::min(at_ + tokens_per_tile_, next_.rows.size());
    for (; at_ < end; ++at_) {
      fetch_row(next_.keys, next_.rows[at_]);
      fetch_row(next_.values, next_.rows[at_]);
    }
  }

 private:
  static HWY_INLINE void fetch_row(const RowsView& rows, std::size_t i) {
    const std::byte* row = rows.data + i * rows.stride;
    const std::size_t bytes = row_bytes(rows.type, rows.dim);
    for (std::size_t b = 0; b < bytes; b += 64) prefetch(row + b);
  }

  const PrefetchTokens& next_;
  std::size_t at_ = 0;
  std::size_t tokens_per_tile_;
};

// The packed elements of a block's tokens.
struct Packed {
  const float* numbers;
  std::size_t dim;
  bool pairs;  // packed as bf16 pairs: see gram_avx512.h
};

// The same for groups 0 .. groups - 1.
void panel(const Packed& packed, std::size_t row, std::size_t groups, float* out,
           std::size_t stride, Prefetcher* prefetcher) {
  const auto [numbers, dim, pairs] = packed;
  if constexpr (kTile == 3) {
    if (pairs && avx512::gram_by_tiles(dim)) {
      for (std::size_t g = 0; prefetcher != nullptr && g < groups; g += kTile) prefetcher->fetch();
      return avx512::gram_panel(numbers, dim, row, groups, out, stride);
    }
  }
  for (std::size_t g = 0; g < groups; g += kTile) {
    if (prefetcher != nullptr) prefetcher->fetch();
    const std::size_t count = std::min(kTile, groups - g);
    if constexpr (kTile == 3) {
      if (pairs) {
        avx512::gram_tile(numbers, dim, row, g, count, out, stride);
      } else if (count == 3) {
        tile<3>(numbers, dim, row, g, out, stride);
      } else if (count == 2) {
        tile<2>(numbers, dim, row, g, out, stride);
      } else {
        tile<1>(numbers, dim, row, g, out, stride);
      }
    } else {
      tile<kTile>(numbers, dim, row, g, out, stride);
    }
  }
}

// For one row: y_i = e^{scale·logit_i − top}·(value_i + offset·offset_i) of `count` (a multiple of
// 16) earlier tokens, where top is scale times the largest logit. Returns Σ y_i η_i and leaves the
// y of the last group, whose signs are not all known yet (those count as 0), in logits.
double signed_sum(float* HWY_RESTRICT logits, const float* HWY_RESTRICT values,
                  const float* HWY_RESTRICT offsets, const float* HWY_RESTRICT signs,
                  std::size_t count, float scale, float offset, float& top) {
  const FloatTag d;
  auto largest = hn::Load(d, logits);
  for (std::size_t i = kLanes; i < count; i += kLanes) {
    largest = hn::Max(largest, hn::Load(d, logits + i));
  }
  top = scale * hn::GetLane(hn::MaxOfLanes(d, largest));
  const auto vtop = hn::Set(d, top);
  const auto vscale = hn::Set(d, scale);
  const auto voffset = hn::Set(d, offset);
  auto sum = hn::Zero(d);
  FloatVec y[kVectors];
  for (std::size_t i = 0; i < count; i += kGroup) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * kLanes;
      const auto e = exp_of_small(hn::MulSub(hn::Load(d, logits + at), vscale, vtop));
      const auto product = values == nullptr ? hn::Zero(d) : hn::Load(d, values + at);
      y[v] = hn::Mul(e, hn::MulAdd(voffset, hn::Load(d, offsets + at), product));
      sum = hn::MulAdd(y[v], hn::Load(d, signs + at), sum);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::Store(y[v], d, logits + count - kGroup + v * kLanes);
  }
  return sum_lanes(sum);
}

// How far from 1/2 the probability of + is: gain·e^{top − shift}·sum.
double pull(const SignRule& rule, double sum, float top) {
  const double x = rule.gain * sum;
  if (!(x != 0.0)) return 0.0;
  if (std::isnan(x)) return 0.0;
  const double exponent = static_cast<double>(top) - rule.shift;
  // Most tokens are far past the cut and need no exponential.
  if (exponent >= 0.0 && std::abs(x) > 1.0) return x;
  return x * std::exp(exponent);
}

std::size_t walk_impl(const SignRule& rule, const PrefetchTokens& next, const float* keys,
                      const float* values, bool pairs, std::size_t tokens, std::size_t key_dim,
                      std::size_t value_dim, const float* offsets, const Position* positions,
                      float* logits, float* products, std::size_t stride, float* signs) {
  std::size_t exceeded = 0;
  Prefetcher prefetcher(next, tokens);
  for (std::size_t row = 0; row < tokens; row += kRows) {
    const std::size_t groups = row / kGroup + 1;
    const std::size_t last = row / kGroup * kGroup;
    const std::size_t rows = std::min(kRows, tokens - row);
    panel({keys, key_dim, pairs}, row, groups, logits, stride, &prefetcher);
    if (value_dim != 0) panel({values, value_dim, pairs}, row, groups, products, stride, nullptr);
    // First the sums that do not depend on the signs of these rows.
    double sums[kRows];
    float tops[kRows];
    for (std::size_t t = 0; t < rows; ++t) {
      float* line = logits + t * stride;
      // A token itself and later tokens do not take part.
      for (std::size_t i = row + t; i < last + kGroup; ++i) {
        line[i] = -std::numeric_limits<float>::infinity();
      }
      sums[t] = signed_sum(line, value_dim == 0 ? nullptr : products + t * stride, offsets, signs,
                           last + kGroup, rule.scale, offsets[row + t], tops[t]);
    }
    for (std::size_t t = 0; t < rows; ++t) {
      const std::size_t j = row + t;
      for (std::size_t i = row; i < j; ++i) sums[t] += logits[t * stride + i] * signs[i];
      double p = 0.5;
      if (j > 0) {
        const double x = pull(rule, sums[t], tops[t]);
        if (std::abs(x) > 0.5) ++exceeded;
        p -= x;
      } else if (rule.first_plus) {
        p = 1.0;
      }
      const auto position = static_cast<std::uint64_t>(positions[j]);
      const bool plus =
          p >= 1.0 || (p > 0.0 && random_unit(rule.key, position, rule.stream, rule.round) < p);
      signs[j] = plus ? 1.0f : -1.0f;
    }
  }
  return exceeded;
}

// Writes four rows to columns i .. i + 3 of a transposed group; returns the coordinates done.
HWY_INLINE std::size_t pack_four(const float* const* rows, const float* weights, std::size_t dim,
                                 float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  (void)rows, (void)weights, (void)dim, (void)out;
  return 0;
#else
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> dd;
  const auto w0 = hn::Set(d, weights[0]), w1 = hn::Set(d, weights[1]);
  const auto w2 = hn::Set(d, weights[2]), w3 = hn::Set(d, weights[3]);
  std::size_t c = 0;
  for (; c + 4 <= dim; c += 4) {
    const auto r0 = hn::Mul(w0, hn::LoadU(d, rows[0] + c));
    const auto r1 = hn::Mul(w1, hn::LoadU(d, rows[1] + c));
    const auto r2 = hn::Mul(w2, hn::LoadU(d, rows[2] + c));
    const auto r3 = hn::Mul(w3, hn::LoadU(d, rows[3] + c));
    const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
    float* to = out + c * kGroup;
    hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, to);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, to + kGroup);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, to + 2 * kGroup);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, to + 3 * kGroup);
  }
  return c;
#endif
}

// Packs rows into one transposed group: out[c·16 + i] = rows[i][c]·weights[i], zeros after the last
// row.
void pack_group_impl(const float* const* rows, const float* weights, std::size_t count,
                     std::size_t dim, float* HWY_RESTRICT out) {
  for (std::size_t i = 0; i < kGroup; i += 4) {
    const std::size_t done = i + 4 <= count ? pack_four(rows + i, weights + i, dim, out + i) : 0;
    for (std::size_t t = i; t < i + 4; ++t) {
      for (std::size_t c = done; c < dim; ++c) {
        out[c * kGroup + t] = t < count ? rows[t][c] * weights[t] : 0.0f;
      }
    }
  }
}

// Subtracts from each coordinate its mean over the tokens, group by group in memory order. Returns
// the largest squared norm left, or a larger bound where padding tokens fill the last group.
float center_impl(float* HWY_RESTRICT keys, std::size_t tokens, std::size_t dim,
                  float* HWY_RESTRICT sums) {
  const FloatTag d;
  const std::size_t groups = (tokens + kGroup - 1) / kGroup;
  const std::size_t size = dim * kGroup;
  std::fill_n(sums, size, 0.0f);
  // Padding tokens of the last group are zeros here.
  for (std::size_t g = 0; g < groups; ++g) {
    const float* at = keys + g * size;
    for (std::size_t i = 0; i < size; i += kLanes) {
      hn::Store(hn::Add(hn::Load(d, sums + i), hn::Load(d, at + i)), d, sums + i);
    }
  }
  for (std::size_t c = 0; c < dim; ++c) {
    auto sum = hn::Load(d, sums + c * kGroup);
    for (std::size_t v = kLanes; v < kGroup; v += kLanes) {
      sum = hn::Add(sum, hn::Load(d, sums + c * kGroup + v));
    }
    sums[c] = sum_lanes(sum) / static_cast<float>(tokens);
  }
  auto largest = hn::Zero(d);
  for (std::size_t g = 0; g < groups; ++g) {
    float* at = keys + g * size;
    FloatVec square[kVectors];
    for (auto& x : square) x = hn::Zero(d);
    for (std::size_t c = 0; c < dim; ++c, at += kGroup) {
      const auto mean = hn::Set(d, sums[c]);
      for (std::size_t v = 0; v < kVectors; ++v) {
        const auto x = hn::Sub(hn::Load(d, at + v * kLanes), mean);
        hn::Store(x, d, at + v * kLanes);
        square[v] = hn::MulAdd(x, x, square[v]);
      }
    }
    for (const auto& x : square) largest = hn::Max(largest, x);
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {

HWY_EXPORT(walk_impl);
HWY_EXPORT(pack_group_impl);
HWY_EXPORT(center_impl);

namespace {

constexpr std::size_t kMostRows = 8;  // of a tile, on any target
static_assert(avx512::kGramRows == kMostRows);

// Exponents up to which keys may be rounded to bf16. The kernel value of two tokens is then off by
// a quarter at most, and by some hundredths where errors of many coordinates cancel.
constexpr float kRoundUpTo = 64.0f;

std::size_t padded(std::size_t tokens) {
  return (tokens + BalanceBlock::kGroup - 1) / BalanceBlock::kGroup * BalanceBlock::kGroup;
}

}  // namespace

float* BalanceBlock::values() const { return packed_.get() + padded(tokens_) * key_dim_; }

void BalanceBlock::resize(std::size_t tokens, std::size_t key_dim, std::size_t value_dim) {
  const std::size_t room = padded(tokens);
  if (room > room_tokens_) {
    offsets_ = allocate_aligned<float>(room);
    signs_ = allocate_aligned<float>(room);
    panel_ = allocate_aligned<float>(2 * kMostRows * room);
    room_tokens_ = room;
  }
  if (room * (key_dim + value_dim) > room_numbers_) {
    room_numbers_ = room * (key_dim + value_dim);
    packed_ = allocate_aligned<float>(room_numbers_);
  }
  if (key_dim > room_dim_) {
    room_dim_ = key_dim;
    sums_ = allocate_aligned<float>(key_dim * kGroup);
  }
  square_bound_ = std::numeric_limits<float>::infinity();
  tokens_ = tokens;
  key_dim_ = key_dim;
  value_dim_ = value_dim;
  std::fill_n(offsets_.get(), room, 0.0f);
  std::fill_n(signs_.get(), room, 0.0f);
}

void BalanceBlock::set_group(std::size_t group, std::span<const float* const> keys,
                             std::span<const float* const> values, std::span<const float> weights) {
  static constexpr float kOnes[kGroup] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  HWY_DYNAMIC_DISPATCH(pack_group_impl)
  (keys.data(), kOnes, keys.size(), key_dim_, this->keys() + group * kGroup * key_dim_);
  if (value_dim_ == 0) return;
  HWY_DYNAMIC_DISPATCH(pack_group_impl)
  (values.data(), weights.data(), values.size(), value_dim_,
   this->values() + group * kGroup * value_dim_);
}

void BalanceBlock::center() {
  if (tokens_ == 0) return;
  square_bound_ = HWY_DYNAMIC_DISPATCH(center_impl)(keys(), tokens_, key_dim_, sums_.get());
}

double BalanceBlock::largest_square(const float* packed, std::size_t dim, bool with_offsets) const {
  double largest = 0;
  for (std::size_t i = 0; i < tokens_; ++i) {
    const float* at = packed + i / kGroup * dim * kGroup + i % kGroup;
    double square = with_offsets ? double{offsets_[i]} * offsets_[i] : 0.0;
    for (std::size_t c = 0; c < dim; ++c) square += double{at[c * kGroup]} * at[c * kGroup];
    largest = std::max(largest, square);
  }
  return largest;
}

double BalanceBlock::largest_key_square() const { return largest_square(keys(), key_dim_, false); }

double BalanceBlock::largest_value_square() const {
  return largest_square(values(), value_dim_, true);
}

std::size_t BalanceBlock::walk(const SignRule& rule, std::span<const Position> positions,
                               const PrefetchTokens& next) {
  const std::size_t stride = room_tokens_;
  const bool pairs =
      square_bound_ * rule.scale <= kRoundUpTo && avx512::multiplies(StorageType::bf16);
  if (pairs) {
    const std::size_t groups = padded(tokens_) / kGroup;
    avx512::pair_up(keys(), groups, key_dim_);
    avx512::pair_up(values(), groups, value_dim_);
  }
  return HWY_DYNAMIC_DISPATCH(walk_impl)(rule, next, keys(), values(), pairs, tokens_, key_dim_,
                                         value_dim_, offsets_.get(), positions.data(), panel_.get(),
                                         panel_.get() + kMostRows * stride, stride, signs_.get());
}

}  // namespace ballast::kernels
#endif
