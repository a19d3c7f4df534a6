#include "model/matmul.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/forced_target.h"
#include "model/bf16_dots.h"
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

/// To the nearest bfloat16, ties to even.
float round_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/// Against float64 sums: of the rounded numbers where products are made of bfloat16, closely; and
/// of the numbers themselves, within what rounding may do.
void expect_product(const Weights& w, ConstMatrix x, ConstMatrix out) {
  const std::size_t cols = w.linear.cols;
  const bool rounds = multiplies_bf16(w.linear.type);
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t r = 0; r < w.linear.rows; ++r) {
      const double bias = w.linear.bias == nullptr ? 0.0 : w.linear.bias[r];
      double sum = bias, made = bias, size = 0.0;
      for (std::size_t c = 0; c < cols; ++c) {
        const float weight = w.decoded[r * cols + c], number = x.row(i)[c];
        sum += double{weight} * number;
        size += std::abs(double{weight} * number);
        made += rounds ? double{round_bf16(weight)} * round_bf16(number) : double{weight} * number;
      }
      const std::string where =
          fmt::format("{} row {} of {} × {}, activation {} of {}", to_string(w.linear.type), r,
                      w.linear.rows, cols, i, x.rows);
      ASSERT_NEAR(out.row(i)[r], made, 1e-6 * size + 1e-6) << where;
      const double error = rounds ? 0x1p-7 + 0x1p-15 : 1e-6;
      ASSERT_NEAR(out.row(i)[r], sum, error * size + 1e-6) << where;
    }
  }
}

/// Calls body once for each kind of processor.
template <typename Body>
void for_each_target(Body&& body) {
  for (std::int64_t target : test::kernel_targets()) {
    const test::ForcedTarget forced(target);
    SCOPED_TRACE(target);
    body();
  }
}

TEST(Matmul, MatchesFloat64ForEveryTypeAndSize) {
  for_each_target([] {
    std::uint64_t seed = 1;
    for (TensorType type : kTypes) {
      const std::size_t block = block_size(type);
      const std::vector<std::size_t> widths =
          block == 1 ? std::vector<std::size_t>{1, 3, 31, 32, 33, 100, 1100}
                     : std::vector{block, 3 * block, 1024 + block, 2048 + block};
      for (std::size_t cols : widths) {
        for (std::size_t rows : {0, 1, 4, 9, 70}) {
          const Weights w(type, rows, cols, ++seed);
          for (std::size_t m : {0, 1, 2, 5, 7, 25}) {
            if (cols > 1000 && (rows != 9 || (m != 1 && m != 7))) continue;
            const Matrix x = test::random_matrix(m, cols, ++seed);
            Matrix out(m, rows);
            multiply(x.view(), w.linear, out.view());
            expect_product(w, x.view(), out.view());
          }
        }
      }
    }
  });
}

/// The loops for processors with AVX-512 but no bfloat16 products, which no target stands for.
TEST(Matmul, DotsOfEveryTypeAsFloats) {
  for_each_target([] {
    std::uint64_t seed = 1;
    for (TensorType type : kTypes) {
      if (!has_row_reader(type)) continue;
      const std::size_t cols = block_size(type) == 1 ? 77 : 3 * block_size(type);
      const Weights w(type, kTileRows, cols, ++seed);
      const Matrix x = test::random_matrix(kTileColumns, cols, ++seed);
      Tile tile;
      for (std::size_t r = 0; r < kTileRows; ++r) tile.rows[r] = w.linear.row(r);
      for (std::size_t c = 0; c < kTileColumns; ++c) tile.xs[c] = x[c].data();
      dot_tile(type, cols, kTileRows, kTileColumns, tile);
      for (std::size_t r = 0; r < kTileRows; ++r) {
        for (std::size_t c = 0; c < kTileColumns; ++c) {
          double sum = 0.0;
          for (std::size_t k = 0; k < cols; ++k) sum += double{w.decoded[r * cols + k]} * x[c][k];
          ASSERT_NEAR(tile.sums[r * kTileColumns + c], sum, 1e-4) << to_string(type);
        }
      }
    }
  });
}

void expect_rows_alike(TensorType type, std::size_t cols) {
  const Weights w(type, 131, cols, 77);
  const Matrix x = test::random_matrix(40, cols, 78);
  Matrix together(40, 131);
  multiply(x.view(), w.linear, together.view());
  for (std::size_t i = 0; i < 40;) {
    const std::size_t count = std::min<std::size_t>(1 + i % 5, 40 - i);
    Matrix some(count, 131);
    multiply(x.view().slice(i, count), w.linear, some.view());
    EXPECT_EQ(0, std::memcmp(some.data(), together[i].data(), count * 131 * sizeof(float)))
        << to_string(type) << " of " << cols;
    i += count;
  }
}

TEST(Matmul, ARowsResultDoesNotDependOnTheOthers) {
  for_each_target([] {
    for (TensorType type : kTypes) expect_rows_alike(type, block_size(type) == 1 ? 111 : 768);
    expect_rows_alike(TensorType::q8_0, 2304);  // in parts
  });
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

/// Blocks of a row in which readers go all their ways: short blocks are read eight at a time, with
/// factors made before, and the rest one by one.
std::size_t blocks_to_read(TensorType type) { return block_size(type) == 32 ? 27 : 3; }

TEST(Matmul, Bfloat16ReadersRoundWhatTheFormatsDecode) {
  for (TensorType type : kTypes) {
    if (!multiplies_bf16(type)) continue;
    const std::size_t cols = block_size(type) == 1 ? 103 : blocks_to_read(type) * block_size(type);
    const Weights w(type, 40, cols, 9);
    std::vector<std::uint16_t> row(padded_bf16(cols), 1);
    for (std::size_t r = 0; r < 40; ++r) {
      unpack_bf16(type, w.linear.row(r), cols, row.data());
      for (std::size_t c = 0; c < row.size(); ++c) {
        const float expected = c < cols ? round_bf16(w.decoded[r * cols + c]) : 0.0f;
        // Zeros may differ in sign.
        ASSERT_EQ(std::bit_cast<float>(std::uint32_t{row[c]} << 16), expected)
            << to_string(type) << " number " << c;
      }
    }
  }
}

/// Zero, the smallest, the largest, and what no file should hold.
TEST(Matmul, Bfloat16ReadersTakeEveryScale) {
  for (TensorType type : kTypes) {
    if (!multiplies_bf16(type) || block_size(type) == 1) continue;
    const std::size_t blocks = blocks_to_read(type), cols = blocks * block_size(type);
    const std::size_t bytes = tensor_bytes(type, cols) / blocks;
    const Weights w(type, 1, cols, 11);
    std::vector<float> decoded(cols);
    std::vector<std::uint16_t> row(padded_bf16(cols));
    for (std::uint16_t scale : {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x8400, 0x3c00, 0x7bff,
                                0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01}) {
      // Every type has its scales first or last.
      for (std::size_t at : {std::size_t{0}, std::size_t{2}, bytes - 4, bytes - 2}) {
        std::vector<std::byte> all(w.linear.row(0), w.linear.row(0) + blocks * bytes);
        for (std::size_t b = 1; b < blocks; b += 4) {
          std::memcpy(all.data() + b * bytes + at, &scale, sizeof scale);
        }
        decode(type, all, decoded);
        unpack_bf16(type, all.data(), cols, row.data());
        for (std::size_t c = 0; c < cols; ++c) {
          const float made = std::bit_cast<float>(std::uint32_t{row[c]} << 16);
          if (!std::isfinite(decoded[c])) {  // infinity may become NaN: logits refuse both
            ASSERT_FALSE(std::isfinite(made))
                << to_string(type) << " scale " << scale << " at " << at;
          } else {
            ASSERT_EQ(made, round_bf16(decoded[c]))
                << to_string(type) << " scale " << scale << " at " << at << " number " << c;
          }
        }
      }
    }
  }
}

TEST(Matmul, RoundsActivationsToTheNearest) {
  if (!multiplies_bf16(TensorType::bf16)) GTEST_SKIP() << "needs AVX512_BF16";
  for (std::size_t n : {1, 31, 32, 33, 111}) {
    const Matrix x = test::random_matrix(1, n, n, 1e3f);
    std::vector<std::uint16_t> out(padded_bf16(n), 1);
    round_to_bf16(x.data(), n, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(std::bit_cast<float>(std::uint32_t{out[i]} << 16),
                i < n ? round_bf16(x.data()[i]) : 0.0f);
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
