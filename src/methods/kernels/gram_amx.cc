// Dot products of balanced tokens by tiles: see gram_avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "methods/kernels/gram_avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/avx512-inl.h"
#include "simd/amx_tiles.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kLineBytes = 64, kStepPairs = 16;
constexpr std::size_t kMaxSteps = kMaxDim / (2 * kStepPairs);
constexpr std::size_t kTogether = 4;  // groups: their sums hide the latency of a product

// Tiles 0 to 3 are sums of eight tokens and a group each, 4 the tokens, 5 to 7 groups.
TileConfig tile_config() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kLineBytes;
    config.rows[tile] = static_cast<std::uint8_t>(tile < 5 ? kGramRows : kStepPairs);
  }
  return config;
}

// Eight tokens as rows, [step][token][16 pairs], from lines of one pair of sixteen tokens.
void turn(const std::byte* group, std::size_t first, std::size_t steps, std::byte* out) {
  for (std::size_t s = 0; s < steps; ++s) {
    const RowSet lines(group + s * kStepPairs * kLineBytes, kLineBytes);
    for (std::size_t chunk = 0; chunk < kGramRows / 4; ++chunk) {
      __m512i four[4];
      unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
        four[r] = four_rows(lines, first * sizeof(float) + chunk * kChunk, r);
      });
      const HalfWords half(four);
      unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA {
        _mm512_store_si512(out + (s * kGramRows + chunk * 4 + i) * kLineBytes, half.word(i));
      });
    }
  }
}

// Products of the tokens with N groups, the first of them at `columns`, `apart` bytes from each
// other. out: of the first token and group.
template <std::size_t N>
BALLAST_INLINE void multiply(const std::byte* tokens, const std::byte* columns, std::size_t apart,
                             std::size_t steps, float* out, std::size_t stride) {
  AmxTiles::zero<0>();
  if constexpr (N > 1) AmxTiles::zero<1>();
  if constexpr (N > 2) AmxTiles::zero<2>();
  if constexpr (N > 3) AmxTiles::zero<3>();
  for (std::size_t s = 0; s < steps; ++s) {
    AmxTiles::load<4>(tokens, kLineBytes);
    AmxTiles::load<5>(columns, kLineBytes);
    AmxTiles::dot_add_bf16<0, 4, 5>();
    if constexpr (N > 1) {
      AmxTiles::load<6>(columns + apart, kLineBytes);
      AmxTiles::dot_add_bf16<1, 4, 6>();
    }
    if constexpr (N > 2) {
      AmxTiles::load<7>(columns + 2 * apart, kLineBytes);
      AmxTiles::dot_add_bf16<2, 4, 7>();
    }
    if constexpr (N > 3) {
      AmxTiles::load<5>(columns + 3 * apart, kLineBytes);
      AmxTiles::dot_add_bf16<3, 4, 5>();
    }
    tokens += kGramRows * kLineBytes, columns += kStepPairs * kLineBytes;
  }
  AmxTiles::store<0>(out, stride);
  if constexpr (N > 1) AmxTiles::store<1>(out + kWide, stride);
  if constexpr (N > 2) AmxTiles::store<2>(out + 2 * kWide, stride);
  if constexpr (N > 3) AmxTiles::store<3>(out + 3 * kWide, stride);
}

}  // namespace

void gram_panel(const float* packed, std::size_t dim, std::size_t row, std::size_t groups,
                float* out, std::size_t stride) {
  const std::size_t steps = up(dim, 2 * kStepPairs) / (2 * kStepPairs);
  const std::size_t apart = dim * kLineBytes, out_stride = stride * sizeof(float);
  const auto* bytes = reinterpret_cast<const std::byte*>(packed);
  alignas(64) std::byte tokens[kMaxSteps * kGramRows * kLineBytes];
  turn(bytes + row / kWide * apart, row % kWide, steps, tokens);
  const TileScope<AmxTiles> scope(tile_config());
  std::size_t g = 0;
  const auto run = [&]<std::size_t N>() BALLAST_INLINE_LAMBDA {
    multiply<N>(tokens, bytes + g * apart, apart, steps, out + g * kWide, out_stride);
    g += N;
  };
  while (g + kTogether <= groups) run.template operator()<kTogether>();
  if (groups - g == 3) return run.template operator()<3>();
  if (groups - g == 2) return run.template operator()<2>();
  if (groups - g == 1) return run.template operator()<1>();
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::avx512 {

void gram_panel(const float*, std::size_t, std::size_t, std::size_t, float*, std::size_t) {}

}  // namespace ballast::kernels::avx512

#endif
