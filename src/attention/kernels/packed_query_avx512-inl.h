// How queries of integer keys are packed (avx512.h). Included within their target's
// attributes.
//
// VNNI multiplies unsigned bytes by signed ones. For int8 keys, a query's code c is 128 h + l with
// signed bytes h and l, and a key's code k enters as k + 128:
//   Σ c k = 128 (Σ h (k + 128) − Σ c) + Σ l (k + 128),  times the query's unit and the key's scale.
// For int4 keys s n + o, c is one byte, with a unit u for each group:
//   u s Σ c n + o u Σ c.
#pragma once

#include "attention/kernels/avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kGroupWords = kQuantGroup / 4;  // 32-bit words of a group of bytes

// A packed query: codes group by group (h, then l), then a term per group, then units. The term is
// −Σ c for int8 and u Σ c for int4.
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
  // int8 has one unit for all groups.
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
