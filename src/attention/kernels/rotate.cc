#include "attention/kernels/rotate.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/rotate.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Compiled without contraction to fused multiply-adds, so that results are equal on every
// processor. (GCC 12 still fuses what it vectorises itself, so these loops are vectorised by hand.)

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;
constexpr std::size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);

HWY_INLINE void turn(Vec cos, Vec sin, Vec& a, Vec& b) {
  const Vec turned = hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin));
  b = hn::Add(hn::Mul(b, cos), hn::Mul(a, sin));
  a = turned;
}

HWY_INLINE void turn_apart(const float* turns, float* a, float* b) {
  const Tag d;
  Vec cos, sin, x = hn::LoadU(d, a), y = hn::LoadU(d, b);
  hn::LoadInterleaved2(d, turns, cos, sin);
  turn(cos, sin, x, y);
  hn::StoreU(x, d, a);
  hn::StoreU(y, d, b);
}

HWY_INLINE void turn_adjacent(const float* turns, float* row) {
  const Tag d;
  Vec cos, sin, x, y;
  hn::LoadInterleaved2(d, turns, cos, sin);
  hn::LoadInterleaved2(d, row, x, y);
  turn(cos, sin, x, y);
  hn::StoreInterleaved2(x, y, d, row);
}

void Apart(const float* turns, std::size_t count, float* a, float* b) {
  const std::size_t lanes = hn::Lanes(Tag());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) turn_apart(turns + 2 * i, a + i, b + i);
  if (i == count) return;
  float last_turns[2 * kMostLanes] = {}, last_a[kMostLanes] = {}, last_b[kMostLanes] = {};
  std::copy(turns + 2 * i, turns + 2 * count, last_turns);
  std::copy(a + i, a + count, last_a);
  std::copy(b + i, b + count, last_b);
  turn_apart(last_turns, last_a, last_b);
  std::copy_n(last_a, count - i, a + i);
  std::copy_n(last_b, count - i, b + i);
}

void Adjacent(const float* turns, std::size_t count, float* row) {
  const std::size_t lanes = hn::Lanes(Tag());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) turn_adjacent(turns + 2 * i, row + 2 * i);
  if (i == count) return;
  float last_turns[2 * kMostLanes] = {}, last[2 * kMostLanes] = {};
  std::copy(turns + 2 * i, turns + 2 * count, last_turns);
  std::copy(row + 2 * i, row + 2 * count, last);
  turn_adjacent(last_turns, last);
  std::copy_n(last, 2 * (count - i), row + 2 * i);
}

void Rows(bool pairs, const float* const* turns, std::size_t count, MutableMatrix rows) {
  for (std::size_t i = 0; i < rows.rows; ++i) {
    float* row = rows.row(i);
    if (pairs) {
      Adjacent(turns[i], count, row);
    } else {
      Apart(turns[i], count, row, row + count);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {
HWY_EXPORT(Apart);
HWY_EXPORT(Adjacent);
HWY_EXPORT(Rows);
}  // namespace

void rotate_apart(const float* turns, std::size_t count, float* a, float* b) {
  HWY_DYNAMIC_DISPATCH(Apart)(turns, count, a, b);
}

void rotate_adjacent(const float* turns, std::size_t count, float* row) {
  HWY_DYNAMIC_DISPATCH(Adjacent)(turns, count, row);
}

void rotate_rows(bool pairs, const float* const* turns, std::size_t count, MutableMatrix rows) {
  HWY_DYNAMIC_DISPATCH(Rows)(pairs, turns, count, rows);
}

}  // namespace ballast::kernels
#endif
