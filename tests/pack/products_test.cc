#include "pack/products.h"

#include <cstring>

#include "ballast/testing/support.h"
#include "simd/forced_target.h"

namespace ballast::kernels {
namespace {

std::vector<std::int8_t> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int8_t> out(count);
  for (auto& x : out) x = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
  return out;
}

TEST(PackProducts, AreThoseOfFloat64) {
  for (const auto& [rows, depth, cols] :
       {std::array<std::size_t, 3>{1, 1, 1}, {5, 64, 32}, {13, 200, 77}, {128, 65, 33}}) {
    const Matrix a = test::random_matrix(rows, depth, 1);
    const auto bytes = random_bytes(depth * cols, 2);
    for (bool transposed : {false, true}) {
      PackRows codes;
      codes.set(a.view());
      Matrix out(rows, cols);
      pack_product(codes, PackMatrix(bytes, depth, cols, transposed), depth, 0, pack_strips(cols),
                   out.view());
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < cols; ++c) {
          double sum = 0;
          for (std::size_t i = 0; i < depth; ++i) {
            sum += double{a[r][i]} * bytes[transposed ? c * depth + i : i * cols + c];
          }
          ASSERT_NEAR(out[r][c], sum, 0.005 * std::sqrt(double(depth)) * 4)
              << rows << ' ' << depth << ' ' << cols << ' ' << transposed;
        }
      }
    }
  }
}

TEST(PackProducts, SmallBlocksKeepTheirPrecisionBesideLargeOnes) {
  Matrix a(1, 128);
  a[0][0] = 1e6f;
  for (std::size_t i = 64; i < 128; ++i) a[0][i] = 1e-3f * static_cast<float>(i);
  PackRows codes;
  codes.set(a.view());
  for (std::size_t i = 64; i < 128; ++i) {
    EXPECT_NEAR(static_cast<float>(codes.codes[i]) * codes.scales[1], a[0][i], 4e-6);
  }
}

TEST(PackProducts, BlocksAreThoseOfFloat64) {
  PackBlocks blocks;
  const std::size_t sizes[] = {16, 5, 33};
  std::vector<Matrix> matrices;
  for (std::size_t size : sizes) {
    Matrix m = test::random_matrix(size, size, size);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < i; ++j) m[i][j] = m[j][i];
    }
    blocks.add(size, {m.data(), size * size});
    matrices.push_back(std::move(m));
  }
  const Matrix before = test::random_matrix(1, 54, 3), after = test::random_matrix(1, 54, 4);
  const Matrix x = test::random_matrix(11, 54, 5);
  Matrix out = test::random_matrix(11, 54, 5);
  blocks.apply(out.view(), before[0], after[0]);
  for (std::size_t r = 0; r < 11; ++r) {
    std::size_t at = 0;
    for (const Matrix& m : matrices) {
      for (std::size_t j = 0; j < m.rows(); ++j) {
        double sum = after[0][at + j];
        for (std::size_t i = 0; i < m.rows(); ++i) {
          sum += (double{x[r][at + i]} + before[0][at + i]) * m[i][j];
        }
        ASSERT_NEAR(out[r][at + j], sum, 1e-4);
      }
      at += m.rows();
    }
  }
}

TEST(PackProducts, EveryProcessorGivesTheSameBits) {
  const std::size_t rows = 29, depth = 300, cols = 100;
  const Matrix a = test::random_matrix(rows, depth, 1);
  const PackMatrix b(random_bytes(depth * cols, 2), depth, cols, false);
  PackBlocks blocks;
  const Matrix m = test::random_matrix(50, 50, 3);
  blocks.add(50, {m.data(), 2500});
  blocks.add(50, {m.data(), 2500});
  std::vector<Matrix> all;
  for (std::int64_t target : test::kernel_targets()) {
    const test::ForcedTarget forced(target);
    PackRows codes;
    codes.set(a.view());
    Matrix out(rows, cols);
    pack_product(codes, b, depth, 0, pack_strips(cols), out.view());
    blocks.apply(out.view(), {}, {});
    all.push_back(std::move(out));
  }
  for (const Matrix& other : all) {
    ASSERT_EQ(std::memcmp(other.data(), all[0].data(), rows * cols * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace ballast::kernels
