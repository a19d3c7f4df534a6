// Inner products of tokens rounded to bf16 against float64 ones of the same numbers.
#include "methods/kernels/gram_avx512.h"

#include "attention/kernels/avx512.h"
#include "simd/trapped_tiles.h"
#include "storage/round.h"
#include "support.h"

namespace ballast {
namespace {

using kernels::avx512::kGramRows;

constexpr std::size_t kTokens = 112, kGroups = kTokens / 16, kStride = 128;

/// Random tokens, as they are and packed.
struct Tokens {
  explicit Tokens(std::size_t dim)
      : dim(dim),
        tokens(test::random_matrix(kTokens, dim, dim)),
        packed(allocate_aligned<float>(kTokens * dim)) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t c = 0; c < dim; ++c) {
        packed[(t / 16 * dim + c) * 16 + t % 16] = tokens[t][c];
      }
    }
    kernels::avx512::pair_up(packed.get(), kGroups, dim);
  }
  double rounded(std::size_t t, std::size_t c) const {
    return double{kernels::bf16_decode(kernels::bf16_encode(tokens[t][c]))};
  }
  /// Expects the products of eight tokens and these groups in `out`, and 777 in its other columns.
  void check(std::size_t row, std::size_t first_group, std::size_t groups, const float* out) const {
    for (std::size_t t = 0; t < kGramRows; ++t) {
      for (std::size_t i = 0; i < kStride; ++i) {
        const float got = out[t * kStride + i];
        if (i / 16 < first_group || i / 16 >= first_group + groups) {
          ASSERT_EQ(got, 777.0f) << "untouched";
          continue;
        }
        double expected = 0, size = 0;
        for (std::size_t c = 0; c < dim; ++c) {
          expected += rounded(row + t, c) * rounded(i, c);
          size += std::abs(rounded(row + t, c) * rounded(i, c));
        }
        ASSERT_NEAR(got, expected, 1e-5 * size) << dim << ": " << row + t << ", " << i;
      }
    }
  }

  std::size_t dim;
  Matrix tokens;
  AlignedArray<float> packed;
};

TEST(GramAvx512, IsThatOfTheRoundedNumbers) {
  if (!kernels::avx512::multiplies(StorageType::bf16)) {
    GTEST_SKIP() << "this processor does not multiply pairs of bf16";
  }
  for (std::size_t dim : {1, 2, 3, 64, 127, 128, 256}) {
    const Tokens tokens(dim);
    auto out = allocate_aligned<float>(kGramRows * kStride);
    for (std::size_t row = 0; row < kTokens; row += kGramRows) {
      for (std::size_t group = 0; group + 3 <= kGroups; group += 3) {
        const std::size_t count = 1 + row / kGramRows % 3;
        std::fill_n(out.get(), kGramRows * kStride, 777.0f);
        kernels::avx512::gram_tile(tokens.packed.get(), dim, row, group, count, out.get(), kStride);
        tokens.check(row, group, count, out.get());
      }
    }
  }
}

#if defined(__x86_64__) && defined(__linux__)
TEST(GramAmx, IsThatOfTheRoundedNumbers) {
  if (!has_avx512_bf16() || !has_avx512_vnni()) {
    GTEST_SKIP() << "needs AVX512_BF16 beside the emulated tiles";
  }
  const test::TrappedTiles tiles;
  if (!has_amx_bf16()) GTEST_SKIP() << "this processor adds in another order";
  EXPECT_FALSE(kernels::avx512::gram_by_tiles(15));
  for (std::size_t dim : {16, 17, 31, 32, 33, 64, 80, 96, 127, 128, 256}) {
    ASSERT_TRUE(kernels::avx512::gram_by_tiles(dim));
    const Tokens tokens(dim);
    auto out = allocate_aligned<float>(kGramRows * kStride);
    for (std::size_t row = 0; row < kTokens; row += kGramRows) {
      const std::size_t groups = 1 + row / kGramRows % kGroups;
      std::fill_n(out.get(), kGramRows * kStride, 777.0f);
      kernels::avx512::gram_panel(tokens.packed.get(), dim, row, groups, out.get(), kStride);
      tokens.check(row, 0, groups, out.get());
    }
  }
}
#endif

}  // namespace
}  // namespace ballast
