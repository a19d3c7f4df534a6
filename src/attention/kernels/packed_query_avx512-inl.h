// How queries of integer keys are packed (avx512.h). Included within their target's
// attributes.
//
// The processor multiplies unsigned bytes by signed ones. A query's codes c are 128 h + l in the
// signed bytes h and l where the keys are int8, which enter as k + 128:
//   Σ c k = 128 (Σ h (k + 128) − Σ c) + Σ l (k + 128),  times the query's unit and the key's scale.
// Where the keys are s n + o (int4), c is one byte, with a unit u for each group:
//   u s Σ c n + o u Σ c.
#pragma once

#include "attention/kernels/avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kGroupWords = kQuantGroup / 4;  // 32-bit words of a group of bytes

// A packed query: codes, group by group (those of h, then those of l), then numbers of each group:
// of int8 −Σ c, of int4 u Σ c, and units.
template <StorageType type>
struct Codes {
  static constexpr std::size_t kBytes = type == StorageType::int8 ? 2 : 1;  // of a code
  static const std::uint32_t* group(const float* packed, std::size_t g) {
    return reinterpret_cast<const std::uint32_t*>(packed) + kBytes * kGroupWords * g;
  }
  static float* sums(float* packed, std::size_t size) { return packed + kBytes * size / 4; }
  static const float* sums(const float* packed, std::size_t size) {
    return packed + kBytes * size / 4;
  }
  // Of int8 one unit for all groups.
  static float* units(float* packed, std::size_t size) {
    return sums(packed, size) + size / kQuantGroup;
  }
  static const float* units(const float* packed, std::size_t size) {
    return sums(packed, size) + size / kQuantGroup;
  }
};

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
