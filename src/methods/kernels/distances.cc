#include "methods/kernels/distances.h"

#include <algorithm>

#include "base/fail.h"
#include "storage/round.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "methods/kernels/distances.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows processed together to hide the latency of the additions.
inline constexpr std::size_t kRows = 4;

// Elements of a row, as stored.
struct F32 {
  using Number = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const float* at) {
    return hn::LoadU(d, at);
  }
  static float one(float x) { return x; }
};
struct Bf16 {
  using Number = std::uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* at) {
    const hn::RebindToUnsigned<D> words;
    const hn::Rebind<std::uint16_t, D> halves;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, at))));
  }
  static float one(std::uint16_t x) { return bf16_decode(x); }
};

// Squared distances of `count` rows of `dim` elements, `stride` apart, from the point.
template <class As>
HWY_INLINE void distances_of(const typename As::Number* rows, std::size_t count, std::size_t dim,
                             std::size_t stride, const float* point, float* out) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = dim / lanes * lanes;
  for (std::size_t first = 0; first < count; first += kRows) {
    const typename As::Number* row[kRows];
    for (std::size_t k = 0; k < kRows; ++k) {
      row[k] = rows + std::min(first + k, count - 1) * stride;  // the last tile repeats a row
    }
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (std::size_t c = 0; c < whole; c += lanes) {
      const auto p = hn::LoadU(d, point + c);
      const auto d0 = hn::Sub(As::load(d, row[0] + c), p);
      const auto d1 = hn::Sub(As::load(d, row[1] + c), p);
      const auto d2 = hn::Sub(As::load(d, row[2] + c), p);
      const auto d3 = hn::Sub(As::load(d, row[3] + c), p);
      s0 = hn::MulAdd(d0, d0, s0);
      s1 = hn::MulAdd(d1, d1, s1);
      s2 = hn::MulAdd(d2, d2, s2);
      s3 = hn::MulAdd(d3, d3, s3);
    }
    float sums[kRows] = {hn::GetLane(hn::SumOfLanes(d, s0)), hn::GetLane(hn::SumOfLanes(d, s1)),
                         hn::GetLane(hn::SumOfLanes(d, s2)), hn::GetLane(hn::SumOfLanes(d, s3))};
    for (std::size_t k = 0; k < std::min(kRows, count - first); ++k) {
      for (std::size_t c = whole; c < dim; ++c) {
        const float difference = As::one(row[k][c]) - point[c];
        sums[k] += difference * difference;
      }
      out[first + k] = sums[k];
    }
  }
}

void OfF32(const float* rows, std::size_t count, std::size_t dim, std::size_t stride,
           const float* point, float* out) {
  distances_of<F32>(rows, count, dim, stride, point, out);
}

void OfBf16(const std::uint16_t* rows, std::size_t count, std::size_t dim, std::size_t stride,
            const float* point, float* out) {
  distances_of<Bf16>(rows, count, dim, stride, point, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {

HWY_EXPORT(OfF32);
HWY_EXPORT(OfBf16);

// Rows of the other types are decoded, this many at a time, so that they stay in the L1 cache.
constexpr std::size_t kUnpacked = 16;

}  // namespace

void squared_distances(const RowsView& rows, std::span<const float> point, std::span<float> out) {
  require(point.size() == rows.dim && out.size() >= rows.rows,
          "distances of {} rows of {} numbers from a point of {} into {} numbers", rows.rows,
          rows.dim, point.size(), out.size());
  if (rows.type == StorageType::f32) {
    HWY_DYNAMIC_DISPATCH(OfF32)
    (reinterpret_cast<const float*>(rows.data), rows.rows, rows.dim, rows.stride / sizeof(float),
     point.data(), out.data());
    return;
  }
  if (rows.type == StorageType::bf16) {
    HWY_DYNAMIC_DISPATCH(OfBf16)
    (reinterpret_cast<const std::uint16_t*>(rows.data), rows.rows, rows.dim,
     rows.stride / sizeof(std::uint16_t), point.data(), out.data());
    return;
  }
  Matrix unpacked(kUnpacked, rows.dim);
  for (std::size_t first = 0; first < rows.rows; first += kUnpacked) {
    const std::size_t count = std::min(kUnpacked, rows.rows - first);
    rows.slice(first, count).decode(unpacked.view().slice(0, count));
    HWY_DYNAMIC_DISPATCH(OfF32)
    (unpacked.data(), count, rows.dim, rows.dim, point.data(), out.data() + first);
  }
}

}  // namespace ballast::kernels
#endif
