#include "gemm/tile_gemm.h"

#include <fmt/format.h>

#include <sys/wait.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "ballast/threads.h"
#include "base/stopwatch.h"
#include "gemm/kernels.h"
#include "gemm/matmul.h"
#include "simd/cpu.h"
#include "simd/tile_file.h"
#include "simd/tile_signals.h"
#include "simd/trapped_tiles.h"
#include "support.h"

#if defined(__x86_64__) && defined(__linux__)

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
// after avx512-inl.h
#include "gemm/tile_gemm-inl.h"

namespace ballast::gemm::avx512 {

/// tile_microkernel() by emulated tiles.
void emulated_microkernel(TensorType type, const TileWeights& w, const TileActivations* x,
                          std::size_t tiles, std::size_t rows,
                          float (*totals)[TileActivations::kM][TileWeights::kN]) {
  tile_microkernel_of_type<test::EmulatedTiles>(type, w, x, tiles, rows, totals);
}

template <typename Tiles>
void multiply_operands(const std::int8_t (&operands)[4][2][16 * 64], TileSums& sums) {
  multiply_tiles<Tiles>(operands[0][0], operands[1][0], operands[2][0], operands[3][0], 2, sums);
}

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

namespace ballast {
namespace {

constexpr TensorType kTypes[] = {
    TensorType::f16,  TensorType::bf16, TensorType::q4_0,   TensorType::q4_1, TensorType::q5_0,
    TensorType::q5_1, TensorType::q8_0, TensorType::q2_k,   TensorType::q3_k, TensorType::q4_k,
    TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl, TensorType::fp4};

class TileGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx512_vnni()) GTEST_SKIP() << "needs AVX-512 VNNI beside the emulated tiles";
  }
};

/// Weight rows in a type, at an odd address as in files.
struct Weights {
  Weights(TensorType type, std::size_t n, std::size_t k, std::vector<std::byte> data) {
    bytes.resize(1);
    bytes.insert(bytes.end(), data.begin(), data.end());
    tensor = {"w", type, {n, k}, std::span(bytes).subspan(1)};
    linear = Linear(tensor);
  }
  static Weights random(TensorType type, std::size_t n, std::size_t k, std::uint64_t seed) {
    const Matrix elements = test::random_matrix(n, k, seed);
    return {type, n, k, encode(type, {elements.data(), n * k})};
  }
  std::vector<std::byte> bytes;
  TensorView tensor;
  Linear linear;
};

/// multiply() by emulated tiles, for any m.
Matrix by_tiles(const Weights& w, ConstMatrix x) {
  constexpr std::size_t kN = TileWeights::kN, kM = TileActivations::kM;
  const auto& [type, data, n, k, row_bytes, bias] = w.linear;
  const TileRows over(x.rows);
  EXPECT_LE(over.rows, kM);
  const std::size_t blocks = superblocks(k);
  const auto packed = allocate_aligned<TileActivations>(blocks * over.tiles);
  for (std::size_t t = 0; t < over.tiles; ++t) {
    const std::size_t first = t * over.rows;
    EXPECT_LT(first, x.rows);
    pack_activations(x.slice(first, std::min(over.rows, x.rows - first)), packed.get() + t,
                     over.tiles);
  }
  const auto panel = allocate_aligned<TileWeights>(1);
  Matrix out(x.rows, n);
  const TileScope<test::EmulatedTiles> scope(tile_config(type, over.rows));
  for (std::size_t begin = 0; begin < n; begin += kN) {
    const std::size_t rows = std::min(kN, n - begin);
    std::vector<float> totals(over.tiles * kM * kN, 0.0f);
    auto* of = reinterpret_cast<float(*)[kM][kN]>(totals.data());
    for (std::size_t s = 0; s < blocks; ++s) {
      pack_weights(type, w.linear.row(begin), row_bytes, rows, k, s, kN, panel[0]);
      gemm::avx512::emulated_microkernel(type, panel[0], packed.get() + s * over.tiles, over.tiles,
                                         over.rows, of);
    }
    for (std::size_t j = 0; j < x.rows; ++j) {
      std::copy_n(of[j / over.rows][j % over.rows], rows, out[j].data() + begin);
    }
  }
  return out;
}

Matrix by_vectors(const Weights& w, ConstMatrix x) {
  force_amx(false);
  Matrix out(x.rows, w.linear.rows);
  multiply(x, w.linear, out.view());
  force_amx({});
  return out;
}

void expect_same_bits(const Matrix& a, const Matrix& b, std::string_view where) {
  for (std::size_t j = 0; j < a.rows(); ++j) {
    for (std::size_t i = 0; i < a.cols(); ++i) {
      if (std::isnan(a[j][i]) && std::isnan(b[j][i])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(a[j][i]), std::bit_cast<std::uint32_t>(b[j][i]))
          << where << ", activation " << j << ", row " << i << ": " << a[j][i] << ", " << b[j][i];
    }
  }
}

void expect_same_bits(TensorType type, std::size_t m, std::size_t n, std::size_t k) {
  const Weights w = Weights::random(type, n, k, m + n + k);
  const Matrix x = test::random_matrix(m, k, m + n + k + 1);
  expect_same_bits(by_tiles(w, x.view()), by_vectors(w, x.view()),
                   fmt::format("{}, {} × {} × {}", to_string(type), m, n, k));
}

TEST_F(TileGemm, HasTheBitsOfOtherPathsForEveryM) {
  for (TensorType type : kTypes) {
    const std::size_t k = block_size(type) == 256 ? 512 : block_size(type) == 32 ? 288 : 300;
    for (std::size_t m : {1, 2, 3, 4, 5, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65}) {
      expect_same_bits(type, m, 35, k);
    }
  }
}

TEST_F(TileGemm, HasTheBitsOfOtherPathsForEveryN) {
  for (TensorType type : kTypes) {
    for (std::size_t n : {0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65}) {
      expect_same_bits(type, 17, n, 256);
    }
  }
}

TEST_F(TileGemm, HasTheBitsOfOtherPathsForEveryK) {
  for (TensorType type : kTypes) {
    for (std::size_t k : {1,   3,   15,  16,  17,  31,  32,  33,  63,  64,  65,  96,   127,
                          128, 129, 160, 192, 224, 255, 256, 257, 288, 512, 768, 1024, 1120}) {
      if (k % block_size(type) == 0) expect_same_bits(type, 18, 19, k);
    }
  }
}

/// Naive sums in float64 of dequantized weights and of activations as they are quantized.
TEST_F(TileGemm, MatchesFloat64) {
  for (TensorType type : kTypes) {
    if (!is_quantized(type)) continue;
    const std::size_t m = 19, n = 37, k = 512 + block_size(type);
    const Weights w = Weights::random(type, n, k, 5);
    const Matrix x = test::random_matrix(m, k, 6), out = by_tiles(w, x.view());
    const std::vector<float> decoded = to_float(w.tensor);
    for (std::size_t j = 0; j < m; ++j) {
      std::vector<double> activations(k);
      for (std::size_t begin = 0; begin < k; begin += 256) {
        const std::size_t end = std::min(k, begin + 256);
        float largest = 0;
        for (std::size_t c = begin; c < end; ++c) largest = std::max(largest, std::abs(x[j][c]));
        for (std::size_t c = begin; c < end; ++c) {
          activations[c] = std::nearbyint(x[j][c] * (4095.0f / largest)) * (double{largest} / 4095);
        }
      }
      for (std::size_t i = 0; i < n; ++i) {
        double sum = 0, size = 0;
        for (std::size_t c = 0; c < k; ++c) {
          sum += activations[c] * decoded[i * k + c];
          size += std::abs(activations[c] * decoded[i * k + c]);
        }
        ASSERT_NEAR(out[j][i], sum, 1e-6 * size) << to_string(type) << " " << j << " " << i;
      }
    }
  }
}

/// Codes, group scales, minima and float16 scales of every size.
TEST_F(TileGemm, TakesAnyBytesOfWeights) {
  std::mt19937 random(7);
  for (TensorType type : kTypes) {
    if (!is_quantized(type)) continue;
    const std::size_t n = 64, k = 512;
    std::vector<std::byte> bytes(n * tensor_bytes(type, k));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const Weights w(type, n, k, bytes);
    const Matrix x = test::random_matrix(16, k, 8);
    expect_same_bits(by_tiles(w, x.view()), by_vectors(w, x.view()), to_string(type));
  }
}

/// The largest sums of a fold: every activation is ±4,095, every weight as large as it can be.
TEST_F(TileGemm, TakesTheLargestSums) {
  for (TensorType type : kTypes) {
    const std::size_t n = 32, k = 512;
    Matrix elements(n, k), x(16, k);
    for (std::size_t c = 0; c < k; ++c) {
      for (std::size_t i = 0; i < n; ++i) elements[i][c] = i % 2 == 0 ? -65000.0f : 65000.0f;
      for (std::size_t j = 0; j < 16; ++j) x[j][c] = j % 2 == 0 ? -1.0f : 1.0f;
    }
    const Weights w(type, n, k, encode(type, {elements.data(), n * k}));
    expect_same_bits(by_tiles(w, x.view()), by_vectors(w, x.view()), to_string(type));
  }
  // All bits set: the codes and group scales of K types.
  for (TensorType type : kTypes) {
    if (!is_quantized(type)) continue;
    const std::size_t n = 32, k = 256;
    for (const unsigned fill : {0x00u, 0x7fu, 0x80u, 0xffu}) {
      std::vector<std::byte> bytes(n * tensor_bytes(type, k), static_cast<std::byte>(fill));
      const std::size_t block = block_bytes(type);
      // Finite scales: 1.
      for (std::size_t at = 0; at < bytes.size(); at += block) {
        const std::uint16_t one = 0x3c00;
        const auto set = [&](int offset) {
          if (offset >= 0) std::memcpy(&bytes[at + static_cast<std::size_t>(offset)], &one, 2);
        };
        for (const auto& [of, layout] : {std::pair{TensorType::q2_k, quant::kQ2_K},
                                         {TensorType::q3_k, quant::kQ3_K},
                                         {TensorType::q4_k, quant::kQ4_K},
                                         {TensorType::q5_k, quant::kQ5_K},
                                         {TensorType::q6_k, quant::kQ6_K},
                                         {TensorType::q8_0, quant::kQ8_0},
                                         {TensorType::q4_0, quant::kQ4_0},
                                         {TensorType::q4_1, quant::kQ4_1},
                                         {TensorType::q5_0, quant::kQ5_0},
                                         {TensorType::q5_1, quant::kQ5_1},
                                         {TensorType::iq4_nl, quant::kIq4Nl},
                                         {TensorType::fp4, quant::kFp4}}) {
          if (of != type) continue;
          set(layout.scale);
          set(layout.min);
        }
      }
      const Weights w(type, n, k, bytes);
      Matrix x(16, k);
      for (std::size_t c = 0; c < k; ++c) {
        for (std::size_t j = 0; j < 16; ++j) x[j][c] = j % 2 == 0 ? -1.0f : 1.0f;
      }
      const Matrix out = by_tiles(w, x.view());
      EXPECT_FALSE(std::isnan(out[0][0]));
      expect_same_bits(out, by_vectors(w, x.view()), fmt::format("{} {}", to_string(type), fill));
    }
  }
}

TEST_F(TileGemm, InfiniteActivationsSpoilTheirOwnResultsOnly) {
  const Weights w = Weights::random(TensorType::q4_k, 33, 768, 1);
  Matrix x = test::random_matrix(20, 768, 2);
  x[7][300] = std::numeric_limits<float>::infinity();
  x[8][0] = std::nanf("");
  std::fill_n(x[9].data(), 768, 0.0f);
  const Matrix out = by_tiles(w, x.view());
  expect_same_bits(out, by_vectors(w, x.view()), "q4_k");
  for (std::size_t j = 0; j < 20; ++j) EXPECT_EQ(std::isnan(out[j][32]), j == 7 || j == 8) << j;
}

/// multiply() as compiled: the instructions are those of the library.
void expect_multiply_takes_tiles(std::size_t m, std::size_t n, std::size_t k, TensorType type) {
  const Weights w = Weights::random(type, n, k, 3);
  const Matrix x = test::random_matrix(m, k, 4), by_others = by_vectors(w, x.view());
  const test::TrappedTiles tiles;
  Matrix out(m, n);
  multiply(x.view(), w.linear, out.view());
  const std::string where = fmt::format("{}, {} × {} × {}", to_string(type), m, n, k);
  if (!tiles.real()) {
    EXPECT_EQ(tiles.products() > 0, m > small_batch_max_m(type)) << where;
  }
  expect_same_bits(out, by_others, where);
}

TEST_F(TileGemm, MultiplyHasTheSameBitsByTheInstructions) {
  for (TensorType type : kTypes) {
    const std::size_t k = block_size(type) == 256 ? 512 : 320;
    for (std::size_t m : {16, 33, 50}) expect_multiply_takes_tiles(m, 70, k, type);
  }
  expect_multiply_takes_tiles(34, 300, 256, TensorType::q8_0);
}

TEST_F(TileGemm, ScratchHoldsActivationsAndAPanel) {
  force_amx(true);
  const std::size_t scratch = multiply_scratch(TensorType::q8_0, 512, 40);
  force_amx({});
  EXPECT_GE(scratch, 3 * 2 * sizeof(TileActivations) + sizeof(TileWeights));
}

/// What becomes of the tiles themselves: tests/simd/tile_state_test.cc.
TEST_F(TileGemm, SignalsAndForksChangeNoBit) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer holds signals back until a system call";
#endif
  const Weights w = Weights::random(TensorType::q8_0, 64, 512, 3);
  const Matrix x = test::random_matrix(40, 512, 4), by_others = by_vectors(w, x.view());
  const test::TrappedTiles tiles;
  const int threads_before = threads();
  set_threads(1);
  const auto agrees = [&] {
    Matrix out(40, 64);
    multiply(x.view(), w.linear, out.view());
    return std::memcmp(out.data(), by_others.data(), 40 * 64 * sizeof(float)) == 0;
  };
  {
    test::TileSignals signals(tiles.real());
    signals.send();
    const Stopwatch watch;
    for (int among_products = 0; among_products < 100;) {
      ASSERT_LT(watch.seconds(), 120) << among_products << " signals";
      const int before = signals.count();
      ASSERT_TRUE(agrees()) << "after " << before << " signals";
      among_products += signals.count() - before;
    }
  }
  const TileScope<AmxTiles> of_parent(tile_config(TensorType::q8_0, 16));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(agrees() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  set_threads(threads_before);
  if (!tiles.real()) GTEST_SKIP() << "no AMX: handlers used no tiles, and nothing saved any";
}

TEST_F(TileGemm, TheProcessorAgreesWithTheEmulation) {
  if (!has_amx_int8()) GTEST_SKIP() << "this processor has no AMX, or the system refuses it";
  using gemm::avx512::TileSums;
  std::mt19937 random(7);
  alignas(64) std::int8_t operands[4][2][16 * 64];
  for (auto& operand : operands) {
    for (auto& tile : operand) {
      for (std::int8_t& byte : tile) byte = static_cast<std::int8_t>(random());
    }
  }
  TileConfig config = tile_config(TensorType::q6_k, 16);
  TileSums real = {}, emulated = {};
  for (std::uint8_t rows : {1, 7, 16}) {
    for (int tile = 0; tile < 6; ++tile) config.rows[tile] = rows;
    const TileScope<AmxTiles> scope(config);
    const TileScope<test::EmulatedTiles> emulated_scope(config);
    gemm::avx512::multiply_operands<AmxTiles>(operands, real);
    gemm::avx512::multiply_operands<test::EmulatedTiles>(operands, emulated);
    EXPECT_EQ(0, std::memcmp(&real, &emulated, sizeof(real))) << int{rows};
  }
}

/// The emulation itself against sums of the operands as matrices.
TEST_F(TileGemm, EmulatedProductsAreThoseOfTheMatrices) {
  using gemm::avx512::TileSums;
  std::mt19937 random(7);
  alignas(64) std::int8_t operands[4][2][16 * 64];
  for (auto& operand : operands) {
    for (auto& tile : operand) {
      for (std::int8_t& byte : tile) byte = static_cast<std::int8_t>(random());
    }
  }
  TileSums sums = {};
  const TileScope<test::EmulatedTiles> scope(tile_config(TensorType::q6_k, 16));
  gemm::avx512::multiply_operands<test::EmulatedTiles>(operands, sums);
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 2; ++b) {
      for (int m = 0; m < 16; ++m) {
        for (int n = 0; n < 16; ++n) {
          double sum = 0;
          for (int k = 0; k < 128; ++k) {
            const int x = operands[a][k / 64][64 * m + k % 64];
            const int w = operands[2 + b][k / 64][k % 64 / 4 * 64 + 4 * n + k % 4];
            sum += double(x) * w;
          }
          ASSERT_EQ(sums.of[a][b][m][n], sum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast

#endif
