// <q, R_n μ>: what keys relative to a turned mean add to their dot products.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "attention/kernels/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/turned.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "simd/vector-inl.h"
#include "storage/turns.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kMostPairs = kMaxDim / 2;

// Sums of Q queries at V vectors of positions from `first` on; each sum runs over the rows of
// columns in order, whatever Q and V are.
template <std::size_t Q, std::size_t V>
HWY_INLINE void sums_of(const float* columns, std::size_t first, std::size_t rows,
                        const float (*turned)[2 * kMostPairs], const float* constants, float* out) {
  const FloatTag d;
  FloatVec sums[Q][V];
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    unroll<V>([&](auto v) BALLAST_INLINE_LAMBDA { sums[q][v] = hn::Set(d, constants[q]); });
  });
  const float* column = columns + first;
  for (std::size_t i = 0; i < rows; ++i, column += kTurnedTogether) {
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
      hn::StoreU(sums[q][v], d, out + q * kTurnedTogether + first + v * kLanes);
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

// A' and B' of fast pairs as they are, of slow ones the factors of polynomials.
HWY_INLINE void by_polynomials(const TurnedMean& mean, float* turned) {
  const hn::CappedTag<float, Turns::kBasis> d;
  constexpr std::size_t kWidth = hn::MaxLanes(d), kVectors = Turns::kBasis / kWidth;
  if (mean.fast == mean.pairs) return;
  hn::Vec<decltype(d)> sums[4][kVectors];  // of every other pair, to hide the latency of additions
  unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA {
    unroll<kVectors>([&](auto v) BALLAST_INLINE_LAMBDA { sums[i][v] = hn::Zero(d); });
  });
  const float* factors = mean.factors;
  const auto add = [&](std::size_t f, auto i) BALLAST_INLINE_LAMBDA {
    unroll<2>([&](auto part) BALLAST_INLINE_LAMBDA {
      const auto coefficient = hn::Set(d, turned[part * mean.pairs + f]);
      unroll<kVectors>([&](auto v) BALLAST_INLINE_LAMBDA {
        auto& sum = sums[2 * i + part][v];
        sum = hn::MulAdd(coefficient, hn::LoadU(d, factors + v * kWidth), sum);
      });
      factors += Turns::kBasis;
    });
  };
  std::size_t f = mean.fast;
  for (; f + 2 <= mean.pairs; f += 2) {
    unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA { add(f + i, i); });
  }
  if (f < mean.pairs) add(f, std::integral_constant<std::size_t, 0>());
  std::memmove(turned + mean.fast, turned + mean.pairs, mean.fast * sizeof(float));
  unroll<kVectors>([&](auto v) BALLAST_INLINE_LAMBDA {
    const auto sum = hn::Add(hn::Add(sums[0][v], sums[1][v]), hn::Add(sums[2][v], sums[3][v]));
    hn::StoreU(sum, d, turned + 2 * mean.fast + v * kWidth);
  });
}

template <std::size_t Q>
HWY_INLINE void products_of(const TurnedMean& mean, const float* cosines, const float* sines,
                            std::size_t query, float* products) {
  HWY_ALIGN float turned[Q][2 * kMostPairs];
  for (std::size_t q = 0; q < Q; ++q) {
    turn_coefficients(mean.coefficients + (query + q) * mean.stride, mean.pairs, cosines, sines,
                      turned[q]);
    by_polynomials(mean, turned[q]);
  }
  const std::size_t rows = 2 * mean.fast + (mean.fast < mean.pairs ? Turns::kBasis : 0);
  // Eight sums in registers hide the latency of an addition.
  constexpr std::size_t kVectors =
      std::min(kTurnedTogether / kLanes, std::max<std::size_t>(8 / Q, 1));
  for (std::size_t first = 0; first < kTurnedTogether; first += kVectors * kLanes) {
    sums_of<Q, kVectors>(mean.columns, first, rows, turned, mean.constants + query,
                         products + query * kTurnedTogether);
  }
}

void TurnedProducts(const TurnedMean& mean, const float* cosines, const float* sines,
                    std::size_t count, float* products) {
  std::size_t q = 0;
  for (; q + 2 <= count; q += 2) products_of<2>(mean, cosines, sines, q, products);
  if (q < count) products_of<1>(mean, cosines, sines, q, products);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {

HWY_EXPORT(TurnedProducts);

void turned_products(const TurnedMean& mean, const float* cosines, const float* sines,
                     std::size_t count, float* products) {
  HWY_DYNAMIC_DISPATCH(TurnedProducts)(mean, cosines, sines, count, products);
}

}  // namespace ballast::kernels
#endif
