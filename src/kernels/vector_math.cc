#include "kernels/vector_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_math.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

void ExpInPlace(float* x, std::size_t n) {
  const FloatTag d;
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(exp(hn::LoadU(d, x + i)), d, x + i);
  if (i == n) return;
  HWY_ALIGN float last[kLanes];
  hn::Store(exp(load_first(x + i, n - i)), d, last);
  std::memcpy(x + i, last, (n - i) * sizeof(float));
}

float Dot(const float* a, const float* b, std::size_t n) {
  const FloatTag d;
  // Four chains hide the latency of the multiply-add.
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
HWY_EXPORT(Dot);
HWY_EXPORT(Axpy);
HWY_EXPORT(SquaredNorms);
}  // namespace

void exp_in_place(std::span<float> x) { HWY_DYNAMIC_DISPATCH(ExpInPlace)(x.data(), x.size()); }
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
