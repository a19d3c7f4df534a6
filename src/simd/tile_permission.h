// Whether this process may use tiles (AMX): what the processor and the system say.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace ballast {

/// Registers that CPUID sets.
struct CpuidLeaf {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};

/// The queries; tests answer them in place of the processor and the system.
struct TileQueries {
  /// None: the processor has no such leaf.
  std::function<std::optional<CpuidLeaf>(std::uint32_t leaf, std::uint32_t subleaf)> cpuid;
  /// XCR0, the states that the system saves. The processor has it only where CPUID says OSXSAVE.
  std::function<std::uint64_t()> saved_states;
  /// arch_prctl(): 0, or the error.
  std::function<int(long code, long argument)> arch_prctl;
};

/// Of this processor and system. On other processors than x86-64 CPUID has no leaf.
TileQueries own_tile_queries();

/// The processor has int8 tiles of the shape that the kernels need, the system saves them, and it
/// grants them to this process: asked last, and only then.
bool tiles_are_granted(const TileQueries& queries);

/// The processor has products of bfloat16 by tiles.
bool has_bf16_tiles(const TileQueries& queries);

}  // namespace ballast
