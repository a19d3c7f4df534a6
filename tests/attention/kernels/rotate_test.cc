#include "attention/kernels/rotate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "simd/forced_target.h"
#include "support.h"

namespace ballast::test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 3, 7, 8, 15, 16, 17, 32, 33, 64, 101, 128};

std::vector<float> turns_of(std::size_t count) {
  std::vector<float> turns;
  for (std::size_t i = 0; i < count; ++i) {
    turns.push_back(std::cos(0.7f * static_cast<float>(i + 1)));
    turns.push_back(std::sin(0.7f * static_cast<float>(i + 1)));
  }
  return turns;
}

TEST(Rotate, FollowsTheDefinitionOnEveryProcessor) {
  for (float size : {1.0f, 1e30f}) {
    for (std::size_t count : kCounts) {
      const std::vector<float> turns = turns_of(count);
      const Matrix source = random_matrix(2, count, count + 1, size);
      for (std::int64_t target : kernel_targets()) {
        ForcedTarget forced(target);
        Matrix apart = random_matrix(2, count, count + 1, size);
        kernels::rotate_apart(turns.data(), count, apart[0].data(), apart[1].data());
        std::vector<float> row(2 * count);
        for (std::size_t i = 0; i < count; ++i) {
          row[2 * i] = source[0][i];
          row[2 * i + 1] = source[1][i];
        }
        kernels::rotate_adjacent(turns.data(), count, row.data());
        for (std::size_t i = 0; i < count; ++i) {
          const double a = source[0][i], b = source[1][i], cos = turns[2 * i],
                       sin = turns[2 * i + 1], near = 1e-6 * (std::abs(a) + std::abs(b));
          ASSERT_NEAR(apart[0][i], a * cos - b * sin, near) << i << " of " << count;
          ASSERT_NEAR(apart[1][i], b * cos + a * sin, near) << i << " of " << count;
          ASSERT_EQ(row[2 * i], apart[0][i]) << i << " of " << count;
          ASSERT_EQ(row[2 * i + 1], apart[1][i]) << i << " of " << count;
        }
      }
    }
  }
}

TEST(Rotate, RowsAreTurnedOneByOne) {
  for (std::size_t rows : {0, 1, 2, 5}) {
    for (std::size_t count : kCounts) {
      const std::size_t cols = 2 * count + 3;  // the last are not turned
      std::vector<std::vector<float>> angles;
      std::vector<const float*> turns;
      for (std::size_t i = 0; i < rows; ++i) {
        angles.push_back(turns_of(count + i));
        turns.push_back(angles[i].data() + 2 * i);
      }
      for (bool pairs : {false, true}) {
        Matrix expected = random_matrix(rows, cols, 4), got = random_matrix(rows, cols, 4);
        for (std::size_t i = 0; i < rows; ++i) {
          float* row = expected[i].data();
          if (pairs) kernels::rotate_adjacent(turns[i], count, row);
          if (!pairs) kernels::rotate_apart(turns[i], count, row, row + count);
        }
        kernels::rotate_rows(pairs, turns.data(), count, got.view());
        ASSERT_TRUE(std::equal(got.data(), got.data() + rows * cols, expected.data()))
            << rows << " rows, " << count << " angles";
      }
    }
  }
}

TEST(Rotate, IsTheSameOnEveryProcessor) {
  const std::size_t count = 101;
  const std::vector<float> turns = turns_of(count);
  std::vector<Matrix> results;
  for (std::int64_t target : kernel_targets()) {
    ForcedTarget forced(target);
    results.push_back(random_matrix(2, count, 3));
    kernels::rotate_apart(turns.data(), count, results.back()[0].data(), results.back()[1].data());
    ASSERT_EQ(0, std::memcmp(results.back().data(), results[0].data(), 2 * count * sizeof(float)));
  }
}

}  // namespace
}  // namespace ballast::test
