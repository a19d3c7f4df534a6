// From dot products to weights: scale, softcap, mask and slope of logits, and exponentials.
#include "attention/kernels/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/softmax.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

PositionRange RangeOf(const std::int32_t* positions) {
  const IntTag d;
  auto first = hn::LoadU(d, positions), last = first;
  for (std::size_t e = kLanes; e < kEntryBlock; e += kLanes) {
    const auto position = hn::LoadU(d, positions + e);
    first = hn::Min(first, position);
    last = hn::Max(last, position);
  }
  return {hn::GetLane(hn::MinOfLanes(d, first)), hn::GetLane(hn::MaxOfLanes(d, last))};
}

HWY_INLINE hn::Mask<FloatTag> hidden(const LogitRule& rule, hn::Vec<IntTag> position) {
  const IntTag di;
  auto mask = hn::Gt(position, hn::Set(di, rule.query_position));
  const std::int64_t oldest = std::int64_t{rule.query_position} - rule.sliding_window;
  if (rule.sliding_window > 0 && oldest >= 0) {
    mask = hn::Or(mask, hn::Gt(hn::Set(di, static_cast<std::int32_t>(oldest) + 1), position));
  }
  return hn::RebindMask(FloatTag(), mask);
}

// The largest dot product of each of Q whole rows; a maximum can miss NaN.
template <std::size_t Q>
HWY_INLINE void largest_products(const float* products, float (&largest)[4]) {
  const FloatTag d;
  FloatVec max[4];
  unroll<Q>([&](auto q)
                BALLAST_INLINE_LAMBDA { max[q] = hn::LoadU(d, products + q * kEntryBlock); });
  for (std::size_t e = kLanes; e < kEntryBlock; e += kLanes) {
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      max[q] = hn::Max(max[q], hn::LoadU(d, products + q * kEntryBlock + e));
    });
  }
  unroll<4 - Q>([&](auto q) BALLAST_INLINE_LAMBDA { max[Q + q] = max[0]; });
  const auto larger = [](auto a, auto b) BALLAST_INLINE_LAMBDA { return hn::Max(a, b); };
  store_four_combined(d, max[0], max[1], max[2], max[3], larger, largest);
}

// Rows processed together, one accumulator each, to hide the latency of a single chain.
constexpr std::size_t kRows = kLanes == 16 ? 4 : 1;

// kPlain: a whole block without softcap and positions, so that no vector needs their branches.
template <bool kPlain>
float finish(const LogitRule& rule, std::size_t count, float* logits) {
  const FloatTag d;
  const IntTag di;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto scale = hn::Set(d, rule.scale);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  const auto nothing = hn::Set(d, -kInfinity);
  const std::size_t end =
      kPlain ? kEntryBlock : std::min(kEntryBlock, (count + kLanes - 1) / kLanes * kLanes);
  for (std::size_t e = count; e < kEntryBlock; ++e) logits[e] = -kInfinity;
  auto max = nothing;
  auto is_nan = hn::IsNaN(max);
  for (std::size_t e = 0; e < end; e += kLanes) {
    const auto dot = hn::LoadU(d, logits + e);
    is_nan = hn::Or(is_nan, hn::IsNaN(dot));
    // Overflowed dot products are clamped to finite values, so that they can be compared and
    // subtracted.
    auto s = hn::Max(hn::Neg(largest), hn::Min(largest, hn::Mul(dot, scale)));
    if (!kPlain && rule.softcap > 0.0f) {
      s = hn::Mul(hn::Set(d, rule.softcap), tanh(hn::Div(s, hn::Set(d, rule.softcap))));
    }
    if (rule.log_weights != nullptr) s = hn::Add(s, hn::LoadU(d, rule.log_weights + e));
    if (!kPlain && rule.positions != nullptr) {
      const auto position = hn::LoadU(di, rule.positions + e);
      if (rule.slope != 0.0f) {
        const auto distance = hn::Sub(hn::Set(di, rule.query_position), position);
        s = hn::NegMulAdd(hn::Set(d, rule.slope), hn::ConvertTo(d, distance), s);
      }
      if (rule.hide) s = hn::IfThenElse(hidden(rule, position), nothing, s);
    }
    if (!kPlain && e + kLanes > count) s = hn::IfThenElse(hn::FirstN(d, count - e), s, nothing);
    hn::StoreU(s, d, logits + e);
    max = hn::Max(max, s);
  }
  if (!hn::AllFalse(d, is_nan)) return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

HWY_INLINE bool is_plain(const LogitRule& rule) {
  const bool distances = rule.positions != nullptr && (rule.hide || rule.slope != 0.0f);
  return !distances && !(rule.softcap > 0.0f);
}
// Whether the rule only scales, by 0 or more.
HWY_INLINE bool only_scales(const LogitRule& rule) {
  return is_plain(rule) && rule.log_weights == nullptr && rule.scale >= 0.0f;
}

// Whether a row with this largest logit needs no clamping: a logit overflowed to -infinity gets
// weight 0, as -FLT_MAX would.
HWY_INLINE bool stays_simple(float largest) { return std::abs(largest) < 1e38f; }

FinishedLogits finish_row(const LogitRule& rule, std::size_t count, float* logits) {
  if (count < kEntryBlock || !is_plain(rule)) return {finish<false>(rule, count, logits), 1.0f};
  if (only_scales(rule)) {
    float largest[4];
    largest_products<1>(logits, largest);
    const float scaled = rule.scale * largest[0];
    if (stays_simple(scaled)) return {scaled, rule.scale};
  }
  return {finish<true>(rule, count, logits), 1.0f};
}

void FinishLogits(std::span<const LogitRule> rules, std::size_t count, float* logits,
                  FinishedLogits* finished) {
  std::size_t r = 0;
  for (; kRows > 1 && count == kEntryBlock && r + kRows <= rules.size(); r += kRows) {
    bool simple = true;
    for (std::size_t i = 0; i < kRows; ++i) simple = simple && only_scales(rules[r + i]);
    if (!simple) break;
    float largest[4];
    largest_products<kRows>(logits + r * kEntryBlock, largest);
    for (std::size_t i = 0; i < kRows; ++i) {
      finished[r + i] = {rules[r + i].scale * largest[i], rules[r + i].scale};
      simple = simple && stays_simple(finished[r + i].largest);
    }
    if (!simple) break;
  }
  for (; r < rules.size(); ++r) {
    finished[r] = finish_row(rules[r], count, logits + r * kEntryBlock);
  }
}

// Processes Q rows together.
template <std::size_t Q>
HWY_INLINE void exponentiate_rows(const FinishedLogits* rows, float* logits, double* sums) {
  const FloatTag d;
  // Always 16 partial sums, whatever the vector width, so that results do not depend on it.
  constexpr std::size_t kSums = 16 / kLanes;
  FloatVec part[kSums][4];
  unroll<kSums>([&](auto i) BALLAST_INLINE_LAMBDA {
    unroll<4>([&](auto q) BALLAST_INLINE_LAMBDA { part[i][q] = hn::Zero(d); });
  });
  FloatVec scale[Q], largest[Q];
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    scale[q] = hn::Set(d, rows[q].scale);
    largest[q] = hn::Set(d, rows[q].largest);
  });
  for (std::size_t e = 0; e < kEntryBlock; e += 16) {
    unroll<kSums>([&](auto i) BALLAST_INLINE_LAMBDA {
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        float* at = logits + q * kEntryBlock + e + i * kLanes;
        // The scaled logit is rounded as in finish_logits() and in `largest`.
        const auto w = exp_of_small(hn::Sub(hn::Mul(hn::LoadU(d, at), scale[q]), largest[q]));
        hn::StoreU(w, d, at);
        part[i][q] = hn::Add(part[i][q], w);
      });
    });
  }
  float totals[kSums][4];
  unroll<kSums>([&](auto i) BALLAST_INLINE_LAMBDA {
    store_four_sums(d, part[i][0], part[i][1], part[i][2], part[i][3], totals[i]);
  });
  for (std::size_t q = 0; q < Q; ++q) {
    sums[q] = 0.0;
    for (const auto& total : totals) sums[q] += total[q];
  }
}

void Exponentiate(std::span<const FinishedLogits> rows, float* logits, double* sums) {
  std::size_t r = 0;
  for (; kRows > 1 && r + kRows <= rows.size(); r += kRows) {
    exponentiate_rows<kRows>(rows.data() + r, logits + r * kEntryBlock, sums + r);
  }
  for (; r < rows.size(); ++r) {
    exponentiate_rows<1>(rows.data() + r, logits + r * kEntryBlock, sums + r);
  }
}

template <typename Take>
HWY_INLINE void reduce_columns(const float* weights, const float* factors, std::size_t count,
                               float* sums, std::size_t entries, const Take& take) {
  const FloatTag d;
  // Several sums at a time hide latency. A whole row, where it fits in registers, reads the weights
  // sequentially from memory.
  constexpr std::size_t kVectors = std::min<std::size_t>(kEntryBlock / kLanes, 8);
  float row[kEntryBlock] = {};
  std::copy_n(sums, entries, row);
  for (std::size_t e = 0; e < entries; e += kVectors * kLanes) {
    FloatVec sum[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) sum[v] = hn::LoadU(d, row + e + v * kLanes);
    for (std::size_t q = 0; q < count; ++q) {
      const auto factor = hn::Set(d, factors[q]);
      const float* from = weights + q * kEntryBlock + e;
      for (std::size_t v = 0; v < kVectors; ++v) {
        sum[v] = take(hn::LoadU(d, from + v * kLanes), factor, sum[v]);
      }
    }
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, row + e + v * kLanes);
  }
  std::copy_n(row, entries, sums);
}

void AddColumns(const float* weights, const float* factors, std::size_t count, float* sums,
                std::size_t entries) {
  reduce_columns(weights, factors, count, sums, entries,
                 [](FloatVec weight, FloatVec factor, FloatVec sum)
                     BALLAST_INLINE_LAMBDA { return hn::MulAdd(weight, factor, sum); });
}

void MaxColumns(const float* weights, const float* factors, std::size_t count, float* maxima,
                std::size_t entries) {
  reduce_columns(weights, factors, count, maxima, entries,
                 [](FloatVec weight, FloatVec factor, FloatVec most)
                     BALLAST_INLINE_LAMBDA { return hn::Max(hn::Mul(weight, factor), most); });
}

void AddSquaredColumns(const float* weights, const float* factors, std::size_t count, float* sums,
                       std::size_t entries) {
  reduce_columns(weights, factors, count, sums, entries,
                 [](FloatVec weight, FloatVec factor, FloatVec sum) BALLAST_INLINE_LAMBDA {
                   const FloatVec share = hn::Mul(weight, factor);
                   return hn::MulAdd(share, share, sum);
                 });
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {
HWY_EXPORT(RangeOf);
HWY_EXPORT(FinishLogits);
HWY_EXPORT(Exponentiate);
HWY_EXPORT(AddColumns);
HWY_EXPORT(MaxColumns);
HWY_EXPORT(AddSquaredColumns);
}  // namespace

PositionRange position_range(const std::int32_t* positions) {
  return HWY_DYNAMIC_DISPATCH(RangeOf)(positions);
}
void finish_logits(std::span<const LogitRule> rules, std::size_t count, float* logits,
                   FinishedLogits* finished) {
  HWY_DYNAMIC_DISPATCH(FinishLogits)(rules, count, logits, finished);
}
void exponentiate(std::span<const FinishedLogits> rows, float* logits, double* sums) {
  HWY_DYNAMIC_DISPATCH(Exponentiate)(rows, logits, sums);
}
void add_columns(const float* weights, const float* factors, std::size_t count,
                 std::span<float> sums) {
  HWY_DYNAMIC_DISPATCH(AddColumns)(weights, factors, count, sums.data(), sums.size());
}
void max_columns(const float* weights, const float* factors, std::size_t count,
                 std::span<float> maxima) {
  HWY_DYNAMIC_DISPATCH(MaxColumns)(weights, factors, count, maxima.data(), maxima.size());
}
void add_squared_columns(const float* weights, const float* factors, std::size_t count,
                         std::span<float> sums) {
  HWY_DYNAMIC_DISPATCH(AddSquaredColumns)(weights, factors, count, sums.data(), sums.size());
}

}  // namespace ballast::kernels
#endif
