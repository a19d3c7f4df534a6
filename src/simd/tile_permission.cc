#include "simd/tile_permission.h"

#include "base/os/process.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ballast {
namespace {

constexpr std::uint32_t kOsSavesState = 1u << 27;                 // leaf 1, c: OSXSAVE
constexpr std::uint32_t kTileInstructions = 1u << 24 | 1u << 25;  // leaf 7, d: tiles, int8
constexpr std::uint32_t kBf16 = 1u << 22;                         // leaf 7, d
constexpr std::uint64_t kTileStates = 1u << 17 | 1u << 18;        // configuration, data
constexpr long kAskForState = 0x1023, kTileData = 18;             // ARCH_REQ_XCOMP_PERM

/// Palette 1 has eight tiles of sixteen rows of 64 bytes, or more.
bool has_palette(const TileQueries& queries) {
  const CpuidLeaf palette = queries.cpuid(0x1D, 1).value_or(CpuidLeaf{});
  const std::uint32_t tile_bytes = palette.a >> 16, row_bytes = palette.b & 0xFFFF,
                      tiles = palette.b >> 16, rows = palette.c & 0xFFFF;
  return tile_bytes >= 1024 && row_bytes >= 64 && tiles >= 8 && rows >= 16;
}

}  // namespace

TileQueries own_tile_queries() {
#if defined(__x86_64__)
  return {[](std::uint32_t leaf, std::uint32_t subleaf) -> std::optional<CpuidLeaf> {
            CpuidLeaf x;
            if (__get_cpuid_count(leaf, subleaf, &x.a, &x.b, &x.c, &x.d) == 0) return {};
            return x;
          },
          [] {
            std::uint32_t low, high;
            asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
            return std::uint64_t{high} << 32 | low;
          },
          call_arch_prctl};
#else
  return {[](std::uint32_t, std::uint32_t) { return std::optional<CpuidLeaf>(); },
          [] { return std::uint64_t{0}; }, call_arch_prctl};
#endif
}

bool tiles_are_granted(const TileQueries& queries) {
  const auto cpuid = [&](std::uint32_t leaf) {
    return queries.cpuid(leaf, 0).value_or(CpuidLeaf{});
  };
  return (cpuid(1).c & kOsSavesState) != 0 &&
         (cpuid(7).d & kTileInstructions) == kTileInstructions && has_palette(queries) &&
         (queries.saved_states() & kTileStates) == kTileStates &&
         queries.arch_prctl(kAskForState, kTileData) == 0;
}

bool has_bf16_tiles(const TileQueries& queries) {
  return (queries.cpuid(7, 0).value_or(CpuidLeaf{}).d & kBf16) != 0;
}

}  // namespace ballast
