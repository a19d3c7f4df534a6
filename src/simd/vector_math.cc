#include "simd/vector_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/vector_math.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

/// Calls body on each vector of x, the last one padded with zeros, and stores its results.
template <typename Body>
HWY_INLINE void in_place(float* x, std::size_t n, const Body& body) {
  const FloatTag d;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(body(hn::LoadU(d, x + i)), d, x + i);
  if (i == n) return;
  HWY_ALIGN float last[kLanes];
  hn::Store(body(load_first(x + i, n - i)), d, last);
  std::memcpy(x + i, last, (n - i) * sizeof(float));
}

void ExpInPlace(float* x, std::size_t n) {
  in_place(x, n, [](FloatVec v) HWY_ATTR { return exp(v); });
}

/// x · sigmoid(a)
HWY_INLINE FloatVec times_sigmoid(FloatVec x, FloatVec a) {
  return hn::Div(x, hn::Add(hn::Set(FloatTag(), 1.0f), exp(hn::Neg(a))));
}

void SiluInPlace(float* x, std::size_t n) {
  in_place(x, n, [](FloatVec v) HWY_ATTR { return times_sigmoid(v, v); });
}

void GeluTanhInPlace(float* x, std::size_t n) {
  in_place(x, n, [](FloatVec v) HWY_ATTR {
    const FloatTag d;
    const auto cube = hn::Mul(hn::Mul(v, v), v);
    const auto argument = hn::MulAdd(hn::Set(d, 0.044715f), cube, v);
    return times_sigmoid(v, hn::Mul(hn::Set(d, 1.5957691216f), argument));
  });
}

void Multiply(const float* x, float* y, std::size_t n) {
  const FloatTag d;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  for (; i < n; ++i) y[i] *= x[i];
}

void ScaleAndWeigh(const float* x, float scale, const float* weights, float* out, std::size_t n) {
  const FloatTag d;
  const auto factor = hn::Set(d, scale);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), factor);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weights + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] * scale * weights[i];
}

float Largest(const float* x, std::size_t n) {
  const FloatTag d;
  const auto least = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVec most = least;
  auto broken = hn::IsNaN(least);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = hn::LoadU(d, x + i);
    most = hn::Max(most, v);
    broken = hn::Or(broken, hn::IsNaN(v));
  }
  float best = hn::GetLane(hn::MaxOfLanes(d, most));
  bool nan = !hn::AllFalse(d, broken);
  for (; i < n; ++i) {
    nan = nan || std::isnan(x[i]);
    best = std::max(best, x[i]);
  }
  return nan ? std::numeric_limits<float>::quiet_NaN() : best;
}

double SumExp(const float* x, std::size_t n, float shift) {
  const FloatTag d;
  // Terms are at most 1 when shift is the largest: a block of them is summed in float32.
  constexpr std::size_t kBlock = 64 * kLanes;
  double sum = 0.0;
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t end = std::min(n, begin + kBlock);
    FloatVec part = hn::Zero(d);
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      part = hn::Add(part, exp(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, shift))));
    }
    sum += static_cast<double>(sum_lanes(part));
    for (; i < end; ++i) sum += static_cast<double>(std::exp(x[i] - shift));
  }
  return sum;
}

float Dot(const float* a, const float* b, std::size_t n) {
  const FloatTag d;
  // Four accumulators hide the latency of the multiply-add.
  FloatVec sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t at = i + j * kLanes;
      sums[j] = hn::MulAdd(hn::LoadU(d, a + at), hn::LoadU(d, b + at), sums[j]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    sums[0] = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sums[0]);
  }
  if (i < n) sums[1] = hn::MulAdd(load_first(a + i, n - i), load_first(b + i, n - i), sums[1]);
  return sum_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

void Axpy(float factor, const float* x, float* y, std::size_t n) {
  const FloatTag d;
  const auto a = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::MulAdd(a, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  if (i == n) return;
  HWY_ALIGN float last[kLanes];
  hn::Store(hn::MulAdd(a, load_first(x + i, n - i), load_first(y + i, n - i)), d, last);
  std::memcpy(y + i, last, (n - i) * sizeof(float));
}

void SquaredNorms(const ConstMatrix& rows, float* out) {
  for (std::size_t i = 0; i < rows.rows; ++i) out[i] = Dot(rows.row(i), rows.row(i), rows.cols);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {
HWY_EXPORT(ExpInPlace);
HWY_EXPORT(SiluInPlace);
HWY_EXPORT(GeluTanhInPlace);
HWY_EXPORT(Multiply);
HWY_EXPORT(ScaleAndWeigh);
HWY_EXPORT(Largest);
HWY_EXPORT(SumExp);
HWY_EXPORT(Dot);
HWY_EXPORT(Axpy);
HWY_EXPORT(SquaredNorms);
}  // namespace

void exp_in_place(std::span<float> x) { HWY_DYNAMIC_DISPATCH(ExpInPlace)(x.data(), x.size()); }
void silu_in_place(std::span<float> x) { HWY_DYNAMIC_DISPATCH(SiluInPlace)(x.data(), x.size()); }
void gelu_tanh_in_place(std::span<float> x) {
  HWY_DYNAMIC_DISPATCH(GeluTanhInPlace)(x.data(), x.size());
}
void multiply(std::span<const float> x, std::span<float> y) {
  HWY_DYNAMIC_DISPATCH(Multiply)(x.data(), y.data(), x.size());
}
void scale_and_weigh(std::span<const float> x, float scale, std::span<const float> weights,
                     std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(ScaleAndWeigh)(x.data(), scale, weights.data(), out.data(), x.size());
}
float largest(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(Largest)(x.data(), x.size());
}
double sum_exp(std::span<const float> x, float shift) {
  return HWY_DYNAMIC_DISPATCH(SumExp)(x.data(), x.size(), shift);
}
float dot(std::span<const float> a, std::span<const float> b) {
  return HWY_DYNAMIC_DISPATCH(Dot)(a.data(), b.data(), a.size());
}
void axpy(float a, std::span<const float> x, std::span<float> y) {
  HWY_DYNAMIC_DISPATCH(Axpy)(a, x.data(), y.data(), x.size());
}
void squared_norms(ConstMatrix rows, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(SquaredNorms)(rows, out.data());
}

}  // namespace ballast::kernels
#endif
