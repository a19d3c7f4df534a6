// GEMM by tiles: packing of weights, and products with AMX.
#include "gemm/tile_gemm.h"

#include "gemm/kernels.h"

#if defined(__x86_64__)

// Code from here on needs has_avx512_vnni(); products need has_amx_int8().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
// after avx512-inl.h
#include "gemm/tile_gemm-inl.h"

namespace ballast {

using namespace gemm::avx512;

void pack_weights(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                  std::size_t k, std::size_t superblock, std::size_t ahead, TileWeights& out) {
  with_any_type(type, [&](auto t) {
    using Type = decltype(t);
    pack_panel<Type, TileSlice<Type>>(w, row_bytes, n, k, superblock, ahead, out);
  });
}

int tile_products(TensorType type) {
  if (!has_int_gemm(type)) return 0;
  const TilePlan plan = with_any_type(type, [](auto t) { return tile_plan<decltype(t)>(); });
  return (plan.two_digits ? 4 : 2) * (plan.depth < 64 ? 2 : 1);
}

TileConfig tile_config(TensorType type, std::size_t rows) {
  const TilePlan plan = with_any_type(type, [](auto t) { return tile_plan<decltype(t)>(); });
  const int depth = std::min(plan.depth, 64);  // a fold of 32 fills half of a tile
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    const bool is_activations = tile == 4 || tile == 5, is_weights = tile > 5;
    config.row_bytes[tile] = static_cast<std::uint16_t>(is_activations ? depth : 64);
    config.rows[tile] = static_cast<std::uint8_t>(is_weights ? depth / 4 : rows);
  }
  return config;
}

void tile_microkernel(TensorType type, const TileWeights& w, const TileActivations* x,
                      std::size_t tiles, std::size_t rows,
                      float (*totals)[TileActivations::kM][TileWeights::kN]) {
  tile_microkernel_of_type<AmxTiles>(type, w, x, tiles, rows, totals);
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#else

namespace ballast {
// has_amx_int8() is false on every other architecture.
namespace {
[[noreturn]] void no_tiles() { fail("this processor has no tiles"); }
}  // namespace

void pack_activations(ConstMatrix, TileActivations*, std::size_t) { no_tiles(); }
void pack_weights(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t, std::size_t,
                  std::size_t, TileWeights&) {
  no_tiles();
}
int tile_products(TensorType) { no_tiles(); }
TileConfig tile_config(TensorType, std::size_t) { no_tiles(); }
void tile_microkernel(TensorType, const TileWeights&, const TileActivations*, std::size_t,
                      std::size_t, float (*)[TileActivations::kM][TileWeights::kN]) {
  no_tiles();
}
}  // namespace ballast

#endif
