// <q, R_n μ>: what keys relative to a turned mean add to their dot products.
#include <algorithm>
#include <array>
#include <cmath>

#include "attention/kernels/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/turned.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kMostPairs = kMaxDim / 2;

// Sums of Q queries at V vectors of positions from `first` on; each sum runs over the pairs in
// order, whatever Q and V are.
template <std::size_t Q, std::size_t V>
HWY_INLINE void sums_of(const float* columns, std::size_t first, std::size_t pairs,
                        const float (*turned)[2 * kMostPairs], const float* constants,
                        float (*out)[kTurnedTogether]) {
  const FloatTag d;
  FloatVec sums[Q][V];
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    unroll<V>([&](auto v) BALLAST_INLINE_LAMBDA { sums[q][v] = hn::Set(d, constants[q]); });
  });
  const float* column = columns + first;
  for (std::size_t i = 0; i < 2 * pairs; ++i, column += kTurnedTogether) {
    FloatVec factor[Q];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA { factor[q] = hn::Set(d, turned[q][i]); });
    unroll<V>([&](auto v) BALLAST_INLINE_LAMBDA {
      const auto turn = hn::LoadU(d, column + v * kLanes);
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        sums[q][v] = hn::MulAdd(factor[q], turn, sums[q][v]);
      });
    });
  }
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    unroll<V>([&](auto v) BALLAST_INLINE_LAMBDA {
      hn::StoreU(sums[q][v], d, out[q] + first + v * kLanes);
    });
  });
}

// The coefficients at position b: A' = A cos + B sin of every pair, then B' = B cos - A sin.
HWY_INLINE void turn_coefficients(const float* a, std::size_t pairs, const float* cosines,
                                  const float* sines, float* turned) {
  const FloatTag d;
  const float* const b = a + pairs;
  std::size_t f = 0;
  for (; f + kLanes <= pairs; f += kLanes) {
    const auto x = hn::LoadU(d, a + f), y = hn::LoadU(d, b + f);
    const auto cos = hn::LoadU(d, cosines + f), sin = hn::LoadU(d, sines + f);
    hn::StoreU(hn::MulAdd(y, sin, hn::Mul(x, cos)), d, turned + f);
    hn::StoreU(hn::NegMulAdd(x, sin, hn::Mul(y, cos)), d, turned + pairs + f);
  }
  for (; f < pairs; ++f) {
    turned[f] = a[f] * cosines[f] + b[f] * sines[f];
    turned[pairs + f] = b[f] * cosines[f] - a[f] * sines[f];
  }
}

// Adds the sums of Q queries at four places, each reduced over its lanes, to the first `count` of
// their products.
template <std::size_t Q>
HWY_INLINE void add_at(const float* const (&rows)[4], std::size_t size,
                       const float (*turned)[2 * kMostPairs], const float* constants,
                       std::size_t count, float* products) {
  const FloatTag d;
  FloatVec sums[Q][4];
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    const auto start = load_first(constants + q, 1);
    unroll<4>([&](auto k) BALLAST_INLINE_LAMBDA { sums[q][k] = start; });
  });
  std::size_t i = 0;
  const auto add = [&](const auto& load) BALLAST_INLINE_LAMBDA {
    FloatVec factor[Q];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA { factor[q] = load(turned[q] + i); });
    unroll<4>([&](auto k) BALLAST_INLINE_LAMBDA {
      const auto turn = load(rows[k] + i);
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        sums[q][k] = hn::MulAdd(factor[q], turn, sums[q][k]);
      });
    });
  };
  for (; i + kLanes <= size; i += kLanes) {
    add([&](const float* at) BALLAST_INLINE_LAMBDA { return hn::LoadU(d, at); });
  }
  if (i < size) {
    add([&](const float* at) BALLAST_INLINE_LAMBDA { return load_first(at, size - i); });
  }
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    float four[4];
    store_four_sums(d, sums[q][0], sums[q][1], sums[q][2], sums[q][3], four);
    float* const row = products + q * kEntryBlock;
    if (count == 4) {
      for (std::size_t k = 0; k < 4; ++k) row[k] += four[k];
    } else {
      for (std::size_t k = 0; k < count; ++k) row[k] += four[k];
    }
  });
}

template <std::size_t Q>
HWY_INLINE void add_of(const TurnedMean& mean, const float* cosines, const float* sines,
                       std::size_t query, const std::uint8_t* places, std::size_t entries,
                       float* products) {
  HWY_ALIGN float turned[Q][2 * kMostPairs];
  for (std::size_t q = 0; q < Q; ++q) {
    turn_coefficients(mean.coefficients + (query + q) * mean.stride, mean.pairs, cosines, sines,
                      turned[q]);
  }
  // Where few of the places are taken, each has its own sum; else vectors of places have.
  const std::size_t needed = places == nullptr ? entries : std::size_t{places[entries - 1]} + 1;
  if (3 * entries < 2 * needed) {
    const std::size_t size = 2 * mean.pairs;
    for (std::size_t e = 0; e < entries; e += 4) {
      const float* rows[4];
      for (std::size_t k = 0; k < 4; ++k) {
        rows[k] = mean.rows + places[std::min(e + k, entries - 1)] * size;
      }
      add_at<Q>(rows, size, turned, mean.constants + query, std::min<std::size_t>(entries - e, 4),
                products + query * kEntryBlock + e);
    }
    return;
  }
  // Eight sums in registers hide the latency of an addition.
  HWY_ALIGN float out[Q][kTurnedTogether];
  constexpr std::size_t kVectors =
      std::min(kTurnedTogether / kLanes, std::max<std::size_t>(8 / Q, 1));
  for (std::size_t first = 0; first < needed; first += kVectors * kLanes) {
    sums_of<Q, kVectors>(mean.columns, first, mean.pairs, turned, mean.constants + query, out);
  }
  for (std::size_t q = 0; q < Q; ++q) {
    float* const row = products + (query + q) * kEntryBlock;
    if (places == nullptr) {
      for (std::size_t e = 0; e < entries; ++e) row[e] += out[q][e];
    } else {
      for (std::size_t e = 0; e < entries; ++e) row[e] += out[q][places[e]];
    }
  }
}

void AddTurned(const TurnedMean& mean, const float* cosines, const float* sines, std::size_t count,
               const std::uint8_t* places, std::size_t entries, float* products) {
  std::size_t q = 0;
  for (; q + 2 <= count; q += 2) add_of<2>(mean, cosines, sines, q, places, entries, products);
  if (q < count) add_of<1>(mean, cosines, sines, q, places, entries, products);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {

HWY_EXPORT(AddTurned);

void add_turned(const TurnedMean& mean, const float* cosines, const float* sines, std::size_t count,
                const std::uint8_t* places, std::size_t entries, float* products) {
  HWY_DYNAMIC_DISPATCH(AddTurned)
  (mean, cosines, sines, count, places, entries, products);
}

}  // namespace ballast::kernels
#endif
