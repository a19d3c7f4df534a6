#include "gemm/matmul.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "ballast/threads.h"
#include "base/fnv.h"
#include "gemm/float_dot.h"
#include "gemm/int_gemm.h"
#include "simd/cpu.h"
#include "simd/forced_target.h"
#include "support.h"

namespace ballast {
namespace {

constexpr TensorType kTypes[] = {
    TensorType::f32,  TensorType::f64,  TensorType::f16,    TensorType::bf16,
    TensorType::q4_0, TensorType::q4_1, TensorType::q5_0,   TensorType::q5_1,
    TensorType::q8_0, TensorType::q2_k, TensorType::q3_k,   TensorType::q4_k,
    TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl, TensorType::fp4};

/// Random weights of a type, and their dequantized values.
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

/// The value that the kernels multiply, and its largest distance from the element.
struct QuantizedElement {
  double value;
  double error;
};

/// Activations as they are quantized for weights of this type.
std::vector<QuantizedElement> quantized(TensorType type, std::span<const float> x) {
  std::vector<QuantizedElement> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    out[i] = {x[i], 0.0};
    if (!has_int_gemm(type)) continue;
    const std::size_t begin = i / 256 * 256, end = std::min(x.size(), begin + 256);
    float most = 0.0f;
    for (std::size_t k = begin; k < end; ++k) most = std::max(most, std::abs(x[k]));
    if (most == 0.0f) continue;
    const double integer = std::nearbyint(x[i] * (4095.0f / most));
    out[i] = {integer * (double{most} / 4095.0), double{most} * (1 + 1e-3) / 8190.0};
  }
  return out;
}

/// A row of weights: F16 and BF16 become integers.
std::vector<QuantizedElement> quantized_weights(TensorType type, std::span<const float> w) {
  std::vector<QuantizedElement> out(w.size());
  const bool rounds = has_int_gemm(type) && !is_quantized(type);
  for (std::size_t i = 0; i < w.size(); ++i) {
    out[i] = {w[i], 0.0};
    if (!rounds) continue;
    const std::size_t begin = i / 256 * 256, end = std::min(w.size(), begin + 256);
    float most = 0.0f;
    for (std::size_t k = begin; k < end; ++k) most = std::max(most, std::abs(w[k]));
    const int least = type == TensorType::f16 ? -14 : -99;
    const double unit =
        std::ldexp(1.0, std::max(most == 0.0f ? least : std::ilogb(most), least) - 12);
    out[i] = {std::nearbyint(w[i] / unit) * unit, unit / 2};
  }
  return out;
}

/// Compares with float64 sums: closely of the quantized values, and of the elements themselves
/// within the quantization error.
void expect_product(const Weights& w, ConstMatrix x, ConstMatrix out) {
  const std::size_t cols = w.linear.cols;
  for (std::size_t i = 0; i < x.rows; ++i) {
    const auto activations = quantized(w.linear.type, {x.row(i), cols});
    for (std::size_t r = 0; r < w.linear.rows; ++r) {
      const auto weights = quantized_weights(w.linear.type, {&w.decoded[r * cols], cols});
      const double bias = w.linear.bias == nullptr ? 0.0 : w.linear.bias[r];
      double sum = bias, made = bias, size = 0.0, error = 0.0;
      for (std::size_t c = 0; c < cols; ++c) {
        const double weight = w.decoded[r * cols + c], element = x.row(i)[c];
        sum += weight * element;
        size += std::abs(weight * element);
        made += weights[c].value * activations[c].value;
        error += std::abs(weight) * activations[c].error +
                 weights[c].error * (std::abs(element) + activations[c].error);
      }
      const std::string where =
          fmt::format("{} row {} of {} × {}, activation {} of {}", to_string(w.linear.type), r,
                      w.linear.rows, cols, i, x.rows);
      const double least = 1e-6 * size + 1e-6;
      ASSERT_NEAR(out.row(i)[r], made, least) << where;
      ASSERT_NEAR(out.row(i)[r], sum, error + least) << where;
    }
  }
}

/// Calls body for each instruction set.
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
                     : std::vector{block,       2 * block,    3 * block,        4 * block,
                                   6 * block,   1024 + block, 1024 + 2 * block, 1024 + 4 * block,
                                   2048 + block};
      for (std::size_t cols : widths) {
        for (std::size_t rows : {0, 1, 4, 9, 70}) {
          const Weights w(type, rows, cols, ++seed);
          for (std::size_t m : {0, 1, 2, 3, 5, 7, 25, 33}) {
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

/// Rows around the length from which they are prefetched sequentially (kLongRow).
TEST(Matmul, LongRowsMatchFloat64) {
  for_each_target([] {
    std::uint64_t seed = 1;
    for (TensorType type : kTypes) {
      const std::size_t block = block_size(type), bytes = block_bytes(type);
      const std::size_t blocks = (4096 + bytes - 1) / bytes;
      for (std::size_t count : {blocks - 1, blocks, blocks + 1}) {
        const Weights w(type, 9, count * block, ++seed);
        for (std::size_t m : {1, 2, 3, 4}) {
          const Matrix x = test::random_matrix(m, count * block, ++seed);
          Matrix out(m, 9);
          multiply(x.view(), w.linear, out.view());
          expect_product(w, x.view(), out.view());
        }
      }
    }
  });
}

/// The float path, which multiply() takes for F32 alone on processors with AVX2, else for all
/// types.
TEST(Matmul, DotsOfTypesWithoutIntegerProducts) {
  for_each_target([] {
    std::uint64_t seed = 1;
    for (TensorType type : kTypes) {
      if (!has_float_kernel(type) || has_int_gemm(type)) continue;
      const std::size_t cols = block_size(type) == 1 ? 77 : 3 * block_size(type);
      const Weights w(type, kTileN, cols, ++seed);
      const Matrix x = test::random_matrix(kTileM, cols, ++seed);
      Tile tile;
      for (std::size_t r = 0; r < kTileN; ++r) tile.rows[r] = w.linear.row(r);
      for (std::size_t c = 0; c < kTileM; ++c) tile.xs[c] = x[c].data();
      dot_tile(type, cols, kTileN, kTileM, tile);
      for (std::size_t r = 0; r < kTileN; ++r) {
        for (std::size_t c = 0; c < kTileM; ++c) {
          double sum = 0.0;
          for (std::size_t k = 0; k < cols; ++k) sum += double{w.decoded[r * cols + k]} * x[c][k];
          ASSERT_NEAR(tile.sums[r * kTileM + c], sum, 1e-4) << to_string(type);
        }
      }
    }
  });
}

void expect_rows_alike(TensorType type, std::size_t cols) {
  const Weights w(type, 131, cols, 77);
  const std::size_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 19, 32};
  const std::size_t all = std::accumulate(std::begin(counts), std::end(counts), std::size_t{0});
  const Matrix x = test::random_matrix(all, cols, 78);
  Matrix together(all, 131);
  multiply(x.view(), w.linear, together.view());
  // Counts on both sides of each change of path.
  std::size_t first = 0;
  for (std::size_t count : counts) {
    Matrix some(count, 131);
    multiply(x.view().slice(first, count), w.linear, some.view());
    EXPECT_EQ(0, std::memcmp(some.data(), together[first].data(), count * 131 * sizeof(float)))
        << to_string(type) << ": " << count << " of " << cols;
    first += count;
  }
}

TEST(Matmul, ARowsResultDoesNotDependOnTheOthers) {
  for_each_target([] {
    for (TensorType type : kTypes) {
      expect_rows_alike(type, block_size(type) == 1 ? 111 : 768);
      if (block_size(type) == 1) expect_rows_alike(type, 2 * 256 + 37);
      if (block_size(type) != 32) continue;
      for (std::size_t part : {64, 96, 128, 192}) expect_rows_alike(type, 256 + part);
    }
    expect_rows_alike(TensorType::q8_0, 2304);
  });
}

/// Rows end with a part of a super-block, and the memory behind the last row may not be read.
TEST(Matmul, NothingBehindTheLastRowIsRead) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for_each_target([&] {
    for (TensorType type : kTypes) {
      if (block_size(type) != 32) continue;
      for (std::size_t cols : {64, 128, 192, 224, 576, 896}) {
        const Weights w(type, 23, cols, 5);
        const std::size_t bytes = w.tensor.data.size(), room = (bytes + page - 1) / page * page;
        void* pages = ::mmap(nullptr, room + page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(pages, MAP_FAILED);
        auto* end = static_cast<std::byte*>(pages) + room;
        ASSERT_EQ(0, ::mprotect(end, page, PROT_NONE));
        std::ranges::copy(w.tensor.data, end - bytes);
        Linear at_end = w.linear;
        at_end.data = end - bytes;
        for (std::size_t m : {1, 2, 3, 8, 40}) {
          const Matrix x = test::random_matrix(m, cols, 6);
          Matrix out(m, 23);
          multiply(x.view(), at_end, out.view());
          expect_product(w, x.view(), out.view());
        }
        ::munmap(pages, room + page);
      }
    }
  });
}

/// One thread's rows exceed what the float path takes at a time, and the last part is shorter.
TEST(Matmul, FloatPathTakesRowsInParts) {
  const int before = threads();
  set_threads(1);
  const Weights w(TensorType::f32, 703, 4100, 31);
  for (std::size_t m : {1, 7, 13}) {
    const Matrix x = test::random_matrix(m, 4100, 32);
    Matrix out(m, 703);
    multiply(x.view(), w.linear, out.view());
    expect_product(w, x.view(), out.view());
  }
  set_threads(before);
}

TEST(Matmul, GemvF16RejectsLargeM) {
  if (!has_int_gemm(TensorType::f16)) GTEST_SKIP() << "needs AVX2";
  const Weights w(TensorType::f16, 4, 32, 1);
  const QuantizedActivationsI16 x[kGemvF16MaxM + 1] = {};
  float out[4 * (kGemvF16MaxM + 1)];
  EXPECT_THROW(gemv_f16(TensorType::f16, w.linear.row(0), w.linear.row_bytes, 4, 32, x,
                        kGemvF16MaxM + 1, out, 4),
               Error);
}

TEST(Matmul, SeveralProductsOfOneInput) {
  Weights a(TensorType::q8_0, 300, 96, 1), b(TensorType::f16, 7, 96, 2),
      c(TensorType::q5_1, 65, 96, 3);
  const Matrix bias = test::random_matrix(1, 300, 4);
  a.linear.bias = bias.data();
  for (std::size_t m : {1, 9, 50}) {
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

/// K types switch to GEMM at a smaller m than Block32 types do.
TEST(Matmul, TypesOfOneInputGiveWhatEachGivesAlone) {
  const Weights a(TensorType::q8_0, 131, 768, 1), b(TensorType::q4_k, 67, 768, 2);
  for (std::size_t m : {1, 2, 3, 4, 5, 9, 32, 33}) {
    const Matrix x = test::random_matrix(m, 768, 3);
    Matrix both_a(m, 131), both_b(m, 67), alone_a(m, 131), alone_b(m, 67);
    const Product products[] = {{&a.linear, both_a.view()}, {&b.linear, both_b.view()}};
    multiply(x.view(), products);
    multiply(x.view(), a.linear, alone_a.view());
    multiply(x.view(), b.linear, alone_b.view());
    expect_product(a, x.view(), both_a.view());
    expect_product(b, x.view(), both_b.view());
    EXPECT_EQ(0, std::memcmp(both_a.data(), alone_a.data(), m * 131 * sizeof(float))) << m;
    EXPECT_EQ(0, std::memcmp(both_b.data(), alone_b.data(), m * 67 * sizeof(float))) << m;
  }
}

TEST(Matmul, DequantizesAsTheFormatsDecode) {
  for (TensorType type : kTypes) {
    if (!has_float_kernel(type)) continue;
    const std::size_t cols = block_size(type) == 1 ? 103 : 2 * block_size(type);
    const Weights w(type, 5, cols, 9);
    std::vector<float> row(cols);
    for (std::size_t r = 0; r < 5; ++r) {
      w.linear.decode_row(r, row);
      for (std::size_t c = 0; c < cols; ++c) {
        ASSERT_EQ(row[c], w.decoded[r * cols + c]) << to_string(type) << " element " << c;
      }
    }
  }
}

/// Unit vectors as activations yield each weight as the kernels multiply it.
TEST(Matmul, IntegerPathsUseTheStoredCodes) {
  for_each_target([] {
    for (TensorType type : kTypes) {
      if (!is_quantized(type) || !has_int_gemm(type)) continue;
      const std::size_t cols = 27 * 32 / block_size(type) * block_size(type);
      const Weights w(type, 37, cols, 9);
      Matrix x(cols, cols), out(cols, 37);
      std::fill_n(x.data(), cols * cols, 0.0f);
      for (std::size_t c = 0; c < cols; ++c) x[c][c] = 1.0f;
      multiply(x.view(), w.linear, out.view());
      for (std::size_t r = 0; r < 37; ++r) {
        float most = 0.0f;
        for (std::size_t c = 0; c < cols; ++c) {
          most = std::max(most, std::abs(w.decoded[r * cols + c]));
        }
        for (std::size_t c = 0; c < cols; ++c) {
          ASSERT_NEAR(out[c][r], w.decoded[r * cols + c], 1e-6f * most)
              << to_string(type) << " row " << r << " element " << c;
        }
      }
    }
  });
}

/// Dots of a row with several activations must have the same bits as with each alone and agree with
/// float64, or be NaN or infinite if a dequantized weight is.
void expect_dots(TensorType type, const std::vector<std::byte>& row, const Matrix& x,
                 const std::string& where) {
  const std::size_t cols = x.cols();
  std::vector<float> decoded(cols);
  decode(type, row, decoded);
  const auto weights = quantized_weights(type, decoded);
  Linear linear(TensorView{"w", type, {1, cols}, row});
  // A few, and enough for GEMM.
  Matrix together(x.rows(), 1), repeated(35, cols), many(35, 1);
  for (std::size_t i = 0; i < 35; ++i) std::ranges::copy(x[i % x.rows()], repeated[i].begin());
  multiply(x.view(), linear, together.view());
  multiply(repeated.view(), linear, many.view());
  for (std::size_t i = 0; i < x.rows(); ++i) {
    Matrix alone(1, 1);
    multiply(x.view().slice(i, 1), linear, alone.view());
    const float out = alone[0][0];
    const auto activations = quantized(type, x[i]);
    double sum = 0.0, size = 0.0, largest = 0.0;
    for (std::size_t c = 0; c < cols; ++c) {
      sum += weights[c].value * activations[c].value;
      size += std::abs(weights[c].value * activations[c].value);
      largest = std::max(largest, std::abs(activations[c].value));
    }
    if (!std::isfinite(sum)) {
      EXPECT_FALSE(std::isfinite(out)) << where;
      EXPECT_FALSE(std::isfinite(together[i][0])) << where;
      EXPECT_FALSE(std::isfinite(many[i][0])) << where;
      continue;
    }
    const auto bits = std::bit_cast<std::uint32_t>(out);
    EXPECT_EQ(bits, std::bit_cast<std::uint32_t>(together[i][0])) << where;
    EXPECT_EQ(bits, std::bit_cast<std::uint32_t>(many[i][0])) << where << ", many";
    // Sums are of activations up to 4,095 before they are scaled.
    if (4096 * size > double{std::numeric_limits<float>::max()} && !std::isfinite(out)) continue;
    // Scale and minimum of a group may cancel; the result is no more exact than they are.
    EXPECT_NEAR(out, sum, 1e-6 * (size + 64.0 * largest)) << where;
  }
}

/// Zero, the smallest, the largest, infinities and NaN.
TEST(Matmul, IntegerPathsTakeEveryScale) {
  for_each_target([] {
    for (TensorType type : kTypes) {
      if (!is_quantized(type) || !has_int_gemm(type)) continue;
      const std::size_t blocks = block_size(type) == 32 ? 19 : 3, cols = blocks * block_size(type);
      const std::size_t bytes = tensor_bytes(type, cols) / blocks;
      const Weights w(type, 1, cols, 11);
      const Matrix x = test::random_matrix(3, cols, 12);
      for (std::uint16_t scale : {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x8400, 0x3c00, 0x7bff,
                                  0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01}) {
        // Every type has its scale and minimum at the start or the end of a block.
        for (std::size_t at : {std::size_t{0}, std::size_t{2}, bytes - 4, bytes - 2}) {
          std::vector<std::byte> row(w.linear.row(0), w.linear.row(0) + blocks * bytes);
          for (std::size_t b = 1; b < blocks; b += 4) {
            std::memcpy(row.data() + b * bytes + at, &scale, sizeof scale);
          }
          expect_dots(type, row, x, fmt::format("{} scale {:x} at {}", to_string(type), scale, at));
        }
      }
    }
  });
}

/// The largest sums: codes, group scales and activations at an end of their range. Activations have
/// one sign, or that of their weight.
TEST(Matmul, IntegerPathsDoNotOverflow) {
  for_each_target([] {
    for (TensorType type : kTypes) {
      if (!is_quantized(type) || !has_int_gemm(type)) continue;
      const std::size_t blocks = 512 / block_size(type);
      const std::size_t bytes = tensor_bytes(type, 512) / blocks;
      const std::uint16_t one = 0x3c00;
      for (int value : {0x00, 0xff, 0x80, 0x7f, 0x55, 0xaa}) {
        for (int scales : {0x00, 0xff, 0x80, 0x7f}) {
          std::vector<std::byte> row(blocks * bytes, static_cast<std::byte>(value));
          for (std::size_t b = 0; b < blocks; ++b) {
            std::byte* block = row.data() + b * bytes;
            // The groups' scales, then the float16 scales.
            const auto set = [&](std::size_t begin, std::size_t end) {
              std::fill(block + begin, block + end, static_cast<std::byte>(scales));
            };
            if (type == TensorType::q2_k) set(0, 16);
            if (type == TensorType::q3_k) set(96, 108);
            if (type == TensorType::q4_k || type == TensorType::q5_k) set(4, 16);
            if (type == TensorType::q6_k) set(192, 208);
            const bool last =
                type == TensorType::q2_k || type == TensorType::q3_k || type == TensorType::q6_k;
            const bool two = type == TensorType::q4_1 || type == TensorType::q5_1 ||
                             type == TensorType::q2_k || type == TensorType::q4_k ||
                             type == TensorType::q5_k;
            std::byte* at = last ? block + bytes - (two ? 4 : 2) : block;
            std::memcpy(at, &one, sizeof one);
            if (two) std::memcpy(at + 2, &one, sizeof one);
          }
          std::vector<float> decoded(512);
          decode(type, row, decoded);
          Matrix x(3, 512);
          for (std::size_t c = 0; c < 512; ++c) {
            x[0][c] = 1.0f;
            x[1][c] = -1.0f;
            x[2][c] = decoded[c] < 0 ? -1.0f : 1.0f;
          }
          expect_dots(type, row, x,
                      fmt::format("{} bytes {:x} scales {:x}", to_string(type), value, scales));
        }
      }
    }
  });
}

/// Integer sums are exact, and floats are summed in one order.
TEST(Matmul, InstructionSetsGiveTheSameBits) {
  if (!has_avx512_vnni()) GTEST_SKIP() << "needs AVX-512 VNNI";
  for (TensorType type : kTypes) {
    if (!has_int_gemm(type)) continue;
    const std::size_t block = block_size(type);
    const std::size_t cols = block == 1 ? 45 + 512 : block == 32 ? 96 + 512 : 1024;
    const Weights w(type, 71, cols, 21);
    for (std::size_t m : {1, 2, 3, 4, 5, 9, 35}) {
      Matrix x = test::random_matrix(m, cols, 22), wide(m, 71), narrow(m, 71);
      x[0][100] = 1e-20f, x[m - 1][300] = 1e20f;
      multiply(x.view(), w.linear, wide.view());
      const test::ForcedTarget forced(HWY_AVX2);
      ASSERT_TRUE(has_int_gemm(type) && !has_avx512_vnni());
      multiply(x.view(), w.linear, narrow.view());
      EXPECT_EQ(0, std::memcmp(wide.data(), narrow.data(), m * 71 * sizeof(float)))
          << to_string(type) << ", " << m;
    }
  }
}

/// Bits of products with the same bytes of weights, on x86-64 and ARM. Whoever changes a sum
/// changes what models answer.
TEST(Matmul, EveryProcessorGivesTheseBits) {
  const std::map<TensorType, std::uint64_t> expected = {
      {TensorType::q4_0, 0x2a6aa70fe7a2d414},   {TensorType::q4_1, 0x68b00a81dc3103e8},
      {TensorType::q5_0, 0xed4db01a71a4ef13},   {TensorType::q5_1, 0xdc635960263282f2},
      {TensorType::q8_0, 0x2ccaee62f7499600},   {TensorType::q2_k, 0x18df81d7f3a788d3},
      {TensorType::q3_k, 0x57373c7d1c1a050c},   {TensorType::q4_k, 0xd201d136b04285d9},
      {TensorType::q5_k, 0xcfa349289c2c8c3c},   {TensorType::q6_k, 0xc45792ddaddf1f55},
      {TensorType::iq4_nl, 0xcfd61ef391ce5037}, {TensorType::fp4, 0xc94f95059e1d767c}};
  constexpr std::size_t kRows = 9, kCols = 1024;
  Matrix x(7, kCols), out(7, kRows);
  for (std::size_t i = 0; i < 7 * kCols; ++i) {
    x.data()[i] = static_cast<float>(static_cast<int>(37 * i % 101) - 50) / 64.0f;
  }
  for_each_target([&] {
    for (const auto& [type, hash] : expected) {
      if (!has_int_gemm(type)) continue;
      std::mt19937_64 random(5);
      std::vector<std::byte> bytes(tensor_bytes(type, kRows * kCols));
      // Without this bit no float16 is infinite.
      for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xbf);
      multiply(x.view(), Linear(TensorView{"w", type, {kRows, kCols}, bytes}), out.view());
      Fnv bits;
      bits.add(std::as_bytes(std::span(out.data(), 7 * kRows)));
      EXPECT_EQ(bits.value(), hash) << to_string(type);
    }
  });
}

/// F16 and BF16: every exponent, elements of all sizes in one super-block, infinities and NaN, and
/// the largest sums.
TEST(Matmul, IntegerPathsTakeFloatsOfAnySize) {
  for_each_target([] {
    if (!has_int_gemm(TensorType::f16)) return;
    constexpr std::size_t kCols = 2 * 256 + 37;
    std::mt19937_64 random(21);
    for (TensorType type : {TensorType::f16, TensorType::bf16}) {
      const int mantissa = type == TensorType::f16 ? 10 : 7, exponents = 1 << (15 - mantissa);
      Matrix x = test::random_matrix(9, kCols, 22);
      for (std::size_t c = 0; c < kCols; ++c) {
        x[1][c] = 1.0f;
        x[2][c] = c % 2 == 0 ? 1.0f : -1.0f;
      }
      const auto expect = [&](const auto& bits_of, const std::string& where) {
        std::vector<std::uint16_t> bits(kCols);
        for (std::size_t c = 0; c < kCols; ++c) bits[c] = static_cast<std::uint16_t>(bits_of(c));
        std::vector<std::byte> row(2 * kCols);
        std::memcpy(row.data(), bits.data(), row.size());
        expect_dots(type, row, x, where);
      };
      for (int e = 0; e < exponents; ++e) {
        const std::string where = fmt::format("{} exponent {}", to_string(type), e);
        const auto number = [&](int exponent) {
          return static_cast<int>(random() & 1) << 15 | exponent << mantissa |
                 static_cast<int>(random() % (1u << mantissa));
        };
        expect([&](std::size_t) { return number(e); }, where);
        // Far smaller elements in its super-block and in the next.
        expect([&](std::size_t c) { return c == 100 ? number(e) : number(e / 2); }, where);
        expect([&](std::size_t c) { return c == 300 ? number(e) : 0; }, where);
        // The largest of their exponent, of one sign or of their activation's.
        const int largest = (e + 1) << mantissa;
        expect([&](std::size_t) { return largest - 1; }, where);
        expect([&](std::size_t c) { return (c % 2 == 0 ? 0 : 1 << 15) | (largest - 1); }, where);
      }
      const int none = (exponents - 1) << mantissa;
      for (int wrong : {none, none | 1 << 15, none | 1}) {
        expect([&](std::size_t c) { return c == 270 ? wrong : 0x3c00; }, "not finite");
      }
    }
  });
}

TEST(Matmul, IntegerPathsTakeActivationsOfAnySize) {
  for_each_target([] {
    if (!has_int_gemm(TensorType::q8_0)) return;
    const float infinity = std::numeric_limits<float>::infinity();
    for (TensorType type : {TensorType::q4_0, TensorType::q4_k, TensorType::q6_k}) {
      const Weights w(type, 5, 768, 1);
      for (float size : {1e-30f, 1e-10f, 1e10f, 1e30f}) {
        Matrix x = test::random_matrix(3, 768, 2, size), out(3, 5);
        // A super-block of zeros, and one in which one element is far larger than the others.
        std::fill_n(x[1].data() + 256, 256, 0.0f);
        x[2][300] = 1e4f * size;
        multiply(x.view(), w.linear, out.view());
        for (std::size_t i = 0; i < 3; ++i) {
          const auto activations = quantized(type, x[i]);
          for (std::size_t r = 0; r < 5; ++r) {
            double sum = 0.0, magnitude = 0.0;
            for (std::size_t c = 0; c < 768; ++c) {
              sum += w.decoded[r * 768 + c] * activations[c].value;
              magnitude += std::abs(w.decoded[r * 768 + c] * activations[c].value);
            }
            EXPECT_NEAR(out[i][r], sum, 1e-6 * magnitude) << to_string(type) << " size " << size;
          }
        }
      }
      for (float wrong : {infinity, -infinity, std::nanf("")}) {
        Matrix x = test::random_matrix(2, 768, 2), out(2, 5), alone(1, 5);
        x[1][700] = wrong;
        multiply(x.view(), w.linear, out.view());
        multiply(x.view().slice(1, 1), w.linear, alone.view());
        for (std::size_t r = 0; r < 5; ++r) {
          EXPECT_TRUE(std::isfinite(out[0][r]));
          EXPECT_FALSE(std::isfinite(out[1][r]));
          EXPECT_FALSE(std::isfinite(alone[0][r]));
        }
      }
    }
  });
}

TEST(Matmul, TakesHugeElements) {
  const Weights w(TensorType::f32, 5, 40, 1);
  Matrix x = test::random_matrix(3, 40, 2, 1e30f), out(3, 5);
  multiply(x.view(), w.linear, out.view());
  expect_product(w, x.view(), out.view());
}

}  // namespace
}  // namespace ballast
