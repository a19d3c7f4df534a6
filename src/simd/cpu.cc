#include "simd/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/cpu.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
// The better a target, the smaller its number.
bool IsAvx512() { return HWY_TARGET <= HWY_AVX3; }
bool IsAvx2() { return HWY_TARGET <= HWY_AVX2; }
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/fail.h"
#include "base/os/process.h"
#include "simd/bf16_tiles.h"
#include "simd/tile_permission.h"

namespace ballast {
namespace {
HWY_EXPORT(IsAvx512);
HWY_EXPORT(IsAvx2);

std::atomic<bool> beyond_highway = true;
std::optional<bool> forced_prefetch_to_l1;
std::optional<bool> forced_amx;

bool processor_has_bf16_tiles() {
  return forced_amx ? *forced_amx : has_bf16_tiles(own_tile_queries());
}

// False where the system does not tell.
bool has_large_l1() { return first_cache_bytes() > (32 << 10); }
}  // namespace

unsigned detail::look() {
  unsigned found = kKnown;
#if defined(__x86_64__)
  if (HWY_DYNAMIC_DISPATCH(IsAvx2)()) found |= kAvx2;
  if (beyond_highway && HWY_DYNAMIC_DISPATCH(IsAvx512)() &&
      __builtin_cpu_supports("avx512vbmi") != 0) {
    if (__builtin_cpu_supports("avx512vnni") != 0) found |= kVnni;
    if (__builtin_cpu_supports("avx512bf16") != 0) found |= kBf16;
  }
#endif
  if (forced_prefetch_to_l1.value_or(has_large_l1())) found |= kLargeL1;
  features.store(found, std::memory_order_relaxed);
  return found;
}

int detail::ask_for_tiles() {
  const bool granted = forced_amx ? *forced_amx : tiles_are_granted(own_tile_queries());
  const int found = granted ? kTiles : kNoTiles;
  tiles.store(found, std::memory_order_relaxed);
  return found;
}

int detail::try_bf16_tiles() {
  const bool used = processor_has_bf16_tiles() && bf16_tile_difference().empty();
  const int found = used ? kTiles : kNoTiles;
  bf16_tiles.store(found, std::memory_order_relaxed);
  return found;
}

std::string amx_bf16_refusal() {
  const bool could = has_avx512_bf16() && has_amx_int8() && processor_has_bf16_tiles();
  return could ? bf16_tile_difference() : std::string();
}

void force_amx(std::optional<bool> forced) {
  forced_amx = forced;
  detail::tiles = 0;
  detail::bf16_tiles = 0;
}

void use_targets(std::int64_t targets, bool beyond) {
  hwy::SetSupportedTargetsForTest(targets);
  beyond_highway = beyond;
  detail::features = 0;
}

void force_prefetch_to_l1(std::optional<bool> forced) {
  forced_prefetch_to_l1 = forced;
  detail::features = 0;
}

void use_target(std::string_view option, std::string_view name) {
  const bool known = name == "native" || name == "amx" || name == "avx512" || name == "avx2";
  require(known, "{} {}: unknown; known: {}", option, name, kTargetNames);
  force_amx({});
  use_targets(0, true);
  const bool has = name == "amx"      ? has_amx_int8()
                   : name == "avx512" ? has_avx512_vnni()
                   : name == "avx2"   ? has_avx2()
                                      : true;
  require(has, "{} {}: this processor, or the system, does not have it; known: {}", option, name,
          kTargetNames);
  if (name == "avx512") force_amx(false);
#if HWY_ARCH_X86
  if (name == "avx2") use_targets(HWY_AVX2, false);
#endif
}

}  // namespace ballast
#endif
