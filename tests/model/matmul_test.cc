#include "model/matmul.h"

#include <cmath>
#include <cstring>

#include "model/row_dots.h"
#include "support.h"

namespace ballast {
namespace {

constexpr TensorType kTypes[] = {
    TensorType::f32,  TensorType::f64,  TensorType::f16,  TensorType::bf16, TensorType::q4_0,
    TensorType::q4_1, TensorType::q5_0, TensorType::q5_1, TensorType::q8_0, TensorType::q2_k,
    TensorType::q3_k, TensorType::q4_k, TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl};

/// Random weights of a type, with what they decode to.
struct Weights {
  Weights(TensorType type, std::size_t rows, std::size_t cols, std::uint64_t seed) {
    const Matrix random = test::random_matrix(rows, cols, seed);
    // An odd offset: tensors of files are not aligned.
    bytes.resize(1);
    const auto data = encode(type, {random.data(), rows * cols});
    bytes.insert(bytes.end(), data.begin(), data.end());
    tensor = {"w", type, {rows, cols}, std::span(bytes).subspan(1)};
    decoded = to_float(tensor);
    linear = Linear(tensor);
  }
  std::vector<std::byte> bytes;
  TensorView tensor;
  std::vector<float> decoded;
  Linear linear;
};

void expect_product(const Weights& w, ConstMatrix x, ConstMatrix out) {
  const std::size_t cols = w.linear.cols;
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t r = 0; r < w.linear.rows; ++r) {
      double sum = w.linear.bias == nullptr ? 0.0 : w.linear.bias[r], size = 0.0;
      for (std::size_t c = 0; c < cols; ++c) {
        const double term = double{w.decoded[r * cols + c]} * x.row(i)[c];
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(out.row(i)[r], sum, 1e-6 * size + 1e-6)
          << to_string(w.linear.type) << " row " << r << " of " << w.linear.rows << " × " << cols
          << ", activation " << i << " of " << x.rows;
    }
  }
}

TEST(Matmul, MatchesFloat64ForEveryTypeAndSize) {
  std::uint64_t seed = 1;
  for (TensorType type : kTypes) {
    const std::size_t block = block_size(type);
    const std::vector<std::size_t> widths = block == 1
                                                ? std::vector<std::size_t>{1, 3, 31, 32, 33, 100}
                                                : std::vector{block, 3 * block};
    for (std::size_t cols : widths) {
      for (std::size_t rows : {0, 1, 4, 9, 70}) {
        const Weights w(type, rows, cols, ++seed);
        for (std::size_t m : {0, 1, 2, 5, 7, 25}) {
          const Matrix x = test::random_matrix(m, cols, ++seed);
          Matrix out(m, rows);
          multiply(x.view(), w.linear, out.view());
          expect_product(w, x.view(), out.view());
        }
      }
    }
  }
}

TEST(Matmul, ARowsResultDoesNotDependOnTheOthers) {
  for (TensorType type : kTypes) {
    const std::size_t cols = block_size(type) == 1 ? 111 : 512;
    const Weights w(type, 131, cols, 77);
    const Matrix x = test::random_matrix(40, cols, 78);
    Matrix together(40, 131);
    multiply(x.view(), w.linear, together.view());
    for (std::size_t i = 0; i < 40;) {
      const std::size_t count = std::min<std::size_t>(1 + i % 5, 40 - i);
      Matrix some(count, 131);
      multiply(x.view().slice(i, count), w.linear, some.view());
      EXPECT_EQ(0, std::memcmp(some.data(), together[i].data(), count * 131 * sizeof(float)))
          << to_string(type);
      i += count;
    }
  }
}

TEST(Matmul, SeveralProductsOfOneInput) {
  Weights a(TensorType::q8_0, 300, 96, 1), b(TensorType::f16, 7, 96, 2),
      c(TensorType::q5_1, 65, 96, 3);
  const Matrix bias = test::random_matrix(1, 300, 4);
  a.linear.bias = bias.data();
  for (std::size_t m : {1, 50}) {
    const Matrix x = test::random_matrix(m, 96, 5);
    Matrix out_a(m, 300), out_b(m, 7), out_c(m, 65);
    const Linear nothing;
    const Product products[] = {{&a.linear, out_a.view()},
                                {&b.linear, out_b.view()},
                                {&nothing, {}},
                                {&c.linear, out_c.view()}};
    multiply(x.view(), products);
    expect_product(a, x.view(), out_a.view());
    expect_product(b, x.view(), out_b.view());
    expect_product(c, x.view(), out_c.view());
  }
}

TEST(Matmul, ReadersUnpackWhatTheFormatsDecode) {
  for (TensorType type : kTypes) {
    if (!has_row_reader(type)) continue;
    const std::size_t cols = block_size(type) == 1 ? 103 : 2 * block_size(type);
    const Weights w(type, 5, cols, 9);
    std::vector<float> row(cols);
    for (std::size_t r = 0; r < 5; ++r) {
      w.linear.decode_row(r, row);
      for (std::size_t c = 0; c < cols; ++c) {
        ASSERT_EQ(row[c], w.decoded[r * cols + c]) << to_string(type) << " number " << c;
      }
    }
  }
}

TEST(Matmul, TakesHugeNumbers) {
  const Weights w(TensorType::f32, 5, 40, 1);
  Matrix x = test::random_matrix(3, 40, 2, 1e30f), out(3, 5);
  multiply(x.view(), w.linear, out.view());
  expect_product(w, x.view(), out.view());
}

}  // namespace
}  // namespace ballast
