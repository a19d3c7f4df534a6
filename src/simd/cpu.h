// What the processor can do beyond the targets that Highway knows.
//
// A query costs a load, where Highway's dispatch takes 3 ns: a decoded token queries several times
// for 128 entries, which take it 150 ns and more.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ballast {

namespace detail {
enum Has : unsigned { kKnown = 1, kAvx2 = 2, kVnni = 4, kBf16 = 8, kLargeL1 = 16 };
inline std::atomic<unsigned> features = 0;  // until look()
unsigned look();
inline bool has(unsigned wanted) {
  unsigned found = features.load(std::memory_order_relaxed);
  if (found == 0) [[unlikely]]
    found = look();
  return (found & wanted) == wanted;
}

/// 0 until ask_for_tiles() or try_bf16_tiles().
inline std::atomic<int> tiles = 0, bf16_tiles = 0;
enum Tiles : int { kNoTiles = 1, kTiles = 2 };
int ask_for_tiles();
int try_bf16_tiles();
}  // namespace detail

/// Whether bfloat16 dot products (vdpbf16ps) may be used: the processor has them beside the common
/// parts of AVX-512 (F, BW, DQ, VL, VBMI), and neither the build nor use_targets() excludes
/// AVX-512.
inline bool has_avx512_bf16() { return detail::has(detail::kBf16); }

/// Whether dot products of bytes and of words (vpdpbusd, vpdpwssd) may be used, with the same parts
/// of AVX-512.
inline bool has_avx512_vnni() { return detail::has(detail::kVnni); }

/// Whether int8 products of tiles (AMX) may be used, beside has_avx512_vnni(): the processor and
/// the system have them, and the system lets this process use them. The first call asks it to, once
/// for all threads; from then on it refuses alternate signal stacks that cannot hold 8 KiB of
/// tiles.
inline bool has_amx_int8() {
  if (!has_avx512_vnni()) return false;
  int found = detail::tiles.load(std::memory_order_relaxed);
  if (found == 0) [[unlikely]]
    found = detail::ask_for_tiles();
  return found == detail::kTiles;
}

/// Whether bfloat16 products of tiles may be used beside vectors, with the same bits: there are
/// has_amx_int8() and has_avx512_bf16(), the processor has these products, too, and they add up as
/// simd/bf16_tiles-inl.h says. The first call tries.
inline bool has_amx_bf16() {
  if (!has_avx512_bf16() || !has_amx_int8()) return false;
  int found = detail::bf16_tiles.load(std::memory_order_relaxed);
  if (found == 0) [[unlikely]]
    found = detail::try_bf16_tiles();
  return found == detail::kTiles;
}

/// Where the processor has bfloat16 tiles, and has_amx_bf16() is false although has_amx_int8() and
/// has_avx512_bf16() are true: a line that says which sum is another one. Otherwise nothing. Tries
/// again.
std::string amx_bf16_refusal();

/// Whether AVX2, FMA and conversions of float16 may be used: the processor has them, and neither
/// the build nor use_targets() excludes AVX2.
inline bool has_avx2() { return detail::has(detail::kAvx2); }

/// Whether attention prefetches rows into L1 rather than L2: where L1 has more than 32 KiB
/// (docs/decisions/004-prefetch-level.md).
inline bool prefetches_to_l1() { return detail::has(detail::kLargeL1); }

/// For tests: sets the result of prefetches_to_l1(); none: the processor's own. Call it when
/// use_targets() may be called.
void force_prefetch_to_l1(std::optional<bool> forced);

/// For tests and measurements: makes all kernels run as on a processor that has, of Highway's
/// targets, only these (0: what there is), and `beyond` them the instructions that Highway does not
/// know. To be called before models and caches are made, and while nothing computes.
void use_targets(std::int64_t targets, bool beyond);

/// For tests and measurements: sets the result of has_amx_int8() where there is AVX-512, and that
/// of has_amx_bf16(), but for its trial; none: the processor's own. Call it when use_targets() may
/// be called.
void force_amx(std::optional<bool> forced);

/// What of the processor a measurement uses.
inline constexpr std::string_view kTargetNames = "native, amx, avx512, avx2";
/// Makes all kernels run as on a processor that has no more than the target, by name: native (what
/// there is), amx, avx512 (without tiles) or avx2; undoes what tests or earlier calls have forced.
/// Throws Error, which begins with `option`, if the name is unknown, or if this processor has less:
/// then all that there is is used. Call it when use_targets() may be called.
void use_target(std::string_view option, std::string_view name);

}  // namespace ballast
