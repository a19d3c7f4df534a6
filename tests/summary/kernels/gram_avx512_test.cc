// Inner products of tokens rounded to bf16 against float64 ones of the same numbers.
#include "summary/kernels/gram_avx512.h"

#include "attention/kernels/avx512.h"
#include "storage/round.h"
#include "support.h"

namespace ballast {
namespace {

using kernels::avx512::kGramRows;

TEST(GramAvx512, IsThatOfTheRoundedNumbers) {
  if (!kernels::avx512::multiplies(StorageType::bf16)) {
    GTEST_SKIP() << "this processor does not multiply pairs of bf16";
  }
  constexpr std::size_t kTokens = 96, kGroups = kTokens / 16, kStride = 128;
  for (std::size_t dim : {1, 2, 3, 64, 127, 128, 256}) {
    const Matrix tokens = test::random_matrix(kTokens, dim, dim);
    auto packed = allocate_aligned<float>(kTokens * dim);
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t c = 0; c < dim; ++c) {
        packed[(t / 16 * dim + c) * 16 + t % 16] = tokens[t][c];
      }
    }
    const auto rounded = [&](std::size_t t, std::size_t c) {
      return double{kernels::bf16_decode(kernels::bf16_encode(tokens[t][c]))};
    };
    kernels::avx512::pair_up(packed.get(), kGroups, dim);
    auto out = allocate_aligned<float>(kGramRows * kStride);
    for (std::size_t row = 0; row < kTokens; row += kGramRows) {
      for (std::size_t group = 0; group < kGroups; group += 3) {
        const std::size_t count = 1 + row / kGramRows % 3;
        std::fill_n(out.get(), kGramRows * kStride, 777.0f);
        kernels::avx512::gram_tile(packed.get(), dim, row, group, count, out.get(), kStride);
        for (std::size_t t = 0; t < kGramRows; ++t) {
          for (std::size_t i = 0; i < kTokens; ++i) {
            const float got = out[t * kStride + i];
            if (i / 16 < group || i / 16 >= group + count) {
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
    }
  }
}

}  // namespace
}  // namespace ballast
