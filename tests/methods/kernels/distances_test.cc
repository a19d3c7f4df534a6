#include "methods/kernels/distances.h"

#include "simd/forced_target.h"
#include "support.h"

namespace ballast::test {
namespace {

TEST(Distances, FollowTheDefinitionInEveryTypeAndOnEveryProcessor) {
  for (std::int64_t target : kernel_targets()) {
    ForcedTarget forced(target);
    for (StorageType type : {StorageType::f32, StorageType::bf16, StorageType::f16,
                             StorageType::int8, StorageType::int4}) {
      for (std::size_t dim : {1u, 7u, 16u, 33u, 64u, 100u, 128u, 200u, 256u, 300u}) {
        for (std::size_t n : {0u, 1u, 3u, 4u, 9u, 70u}) {
          const Matrix source = random_matrix(n, dim, dim + n, 3.0f);
          Rows rows(type, dim, n);
          for (std::size_t i = 0; i < n; ++i) rows.set(i, source[i]);
          const Matrix point = random_matrix(1, dim, 5, 3.0f);
          std::vector<float> out(n, -1.0f), row(dim);
          kernels::squared_distances(rows.view(0, n), point[0], out);
          for (std::size_t i = 0; i < n; ++i) {
            rows.view(0, n).decode(i, row);
            double expected = 0;
            for (std::size_t c = 0; c < dim; ++c) {
              expected += (double{row[c]} - point[0][c]) * (double{row[c]} - point[0][c]);
            }
            ASSERT_NEAR(out[i], expected, 1e-5 * expected)
                << to_string(type) << " dim " << dim << " row " << i << " of " << n;
          }
        }
      }
    }
  }
}

TEST(Distances, EqualPointsAreAtZeroAndNearOnesKeepTheirDigits) {
  const std::size_t dim = 128;
  Matrix rows = random_matrix(8, dim, 1, 100.0f);
  const Matrix point = random_matrix(1, dim, 2, 100.0f);
  std::copy_n(point.data(), dim, rows[2].data());
  std::copy_n(point.data(), dim, rows[5].data());
  rows[5][17] = point[0][17] + 0.0078125f;
  std::vector<float> out(8);
  kernels::squared_distances(view_f32(rows.view()), point[0], out);
  EXPECT_EQ(out[2], 0.0f);
  const double gap = double{rows[5][17]} - point[0][17];
  EXPECT_NEAR(out[5], gap * gap, 1e-6 * gap * gap);
}

TEST(Distances, RefuseWrongShapes) {
  const Matrix rows = random_matrix(3, 8, 1);
  std::vector<float> point(7), out(3);
  EXPECT_THAT(error_of([&] { kernels::squared_distances(view_f32(rows.view()), point, out); }),
              testing::HasSubstr("7"));
}

}  // namespace
}  // namespace ballast::test
