#include "pack/products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pack/products.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "base/checks.h"
#include "base/fail.h"
#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using IntVec = hn::Vec<IntTag>;

// The same pair of int16 numbers in every lane.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE ShortVec pair_of(const std::int16_t* a) { return {a[0], a[1]}; }
#else
HWY_INLINE ShortVec pair_of(const std::int16_t* a) {
  std::int32_t both;
  std::memcpy(&both, a, sizeof(both));
  return hn::BitCast(ShortTag(), hn::Set(IntTag(), both));
}
#endif

template <std::size_t kRows>
HWY_INLINE void product_tile(const std::int16_t* a, const float* scales, const std::int8_t* b,
                             std::size_t col, float* out, std::size_t stride) {
  const FloatTag d;
  IntVec sums[kRows][2];
  unroll<kRows>([&](auto r)
                    BALLAST_INLINE_LAMBDA { sums[r][0] = sums[r][1] = hn::Zero(IntTag()); });
  const auto* bytes = reinterpret_cast<const std::byte*>(b) + 2 * col;
  for (std::size_t pair = 0; pair < kPackDepth / 2; ++pair) {
    const ShortVec b0 = load_i8_as_i16(bytes + pair * 2 * kPackStrip);
    const ShortVec b1 = load_i8_as_i16(bytes + pair * 2 * kPackStrip + 2 * kLanes);
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
      const ShortVec x = pair_of(a + r * kPackDepth + 2 * pair);
      sums[r][0] = add_products(sums[r][0], x, b0);
      sums[r][1] = add_products(sums[r][1], x, b1);
    });
  }
  unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
    unroll<2>([&](auto v) BALLAST_INLINE_LAMBDA {
      float* at = out + r * stride + col + v * kLanes;
      const auto product = hn::Mul(hn::ConvertTo(d, sums[r][v]), hn::Set(d, scales[r]));
      hn::StoreU(hn::Add(hn::LoadU(d, at), product), d, at);
    });
  });
}

/// out (rows × kPackStrip) += a block of a times a block of b.
void AddBlock(const std::int16_t* a, const float* scales, std::size_t rows, const std::int8_t* b,
              float* out, std::size_t stride) {
  constexpr std::size_t kTile = 6;  // 12 sums, 2 vectors of b, a number of a: 16 registers
  for (std::size_t col = 0; col < kPackStrip; col += 2 * kLanes) {
    std::size_t r = 0;
    for (; r + kTile <= rows; r += kTile) {
      product_tile<kTile>(a + r * kPackDepth, scales + r, b, col, out + r * stride, stride);
    }
    for (; r < rows; ++r) {
      product_tile<1>(a + r * kPackDepth, scales + r, b, col, out + r * stride, stride);
    }
  }
}

template <std::size_t kRows>
HWY_INLINE void block_tile(const float* rows, std::size_t stride, std::size_t size,
                           const float* matrix, std::size_t matrix_stride, float* out,
                           std::size_t out_stride) {
  const FloatTag d;
  for (std::size_t col = 0; col < matrix_stride; col += kLanes) {
    FloatVec sums[kRows];
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA { sums[r] = hn::Zero(d); });
    for (std::size_t i = 0; i < size; ++i) {
      const auto m = hn::LoadU(d, matrix + i * matrix_stride + col);
      unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
        sums[r] = hn::Add(sums[r], hn::Mul(hn::Set(d, rows[r * stride + i]), m));
      });
    }
    unroll<kRows>(
        [&](auto r) BALLAST_INLINE_LAMBDA { hn::StoreU(sums[r], d, out + r * out_stride + col); });
  }
}

/// out (rows × matrix_stride) = rows · matrix.
void ApplyBlock(const float* rows, std::size_t stride, std::size_t count, std::size_t size,
                const float* matrix, std::size_t matrix_stride, float* out) {
  constexpr std::size_t kTile = 8;
  std::size_t r = 0;
  for (; r + kTile <= count; r += kTile) {
    block_tile<kTile>(rows + r * stride, stride, size, matrix, matrix_stride,
                      out + r * matrix_stride, matrix_stride);
  }
  for (; r < count; ++r) {
    block_tile<1>(rows + r * stride, stride, size, matrix, matrix_stride, out + r * matrix_stride,
                  matrix_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {
HWY_EXPORT(AddBlock);
HWY_EXPORT(ApplyBlock);

// The columns of a block in PackBlocks are filled up to a multiple of this.
constexpr std::size_t kColumns = 16;
}  // namespace

PackMatrix::PackMatrix(std::span<const std::int8_t> rows, std::size_t depth, std::size_t cols,
                       bool transposed)
    : depth(depth), cols(cols) {
  data.resize(pack_strips(cols) * pack_depths(depth) * kPackDepth * kPackStrip);
  const std::size_t row = transposed ? 1 : cols, col = transposed ? depth : 1;
  for (std::size_t begin = 0; begin < cols; begin += kPackStrip) {
    std::int8_t* const strip = data.data() + begin * pack_depths(depth) * kPackDepth;
    const std::size_t count = std::min(kPackStrip, cols - begin);
    for (std::size_t i = 0; i < depth; ++i) {
      std::int8_t* const to = strip + i / 2 * 2 * kPackStrip + i % 2;
      const std::int8_t* const from = rows.data() + i * row + begin * col;
      for (std::size_t c = 0; c < count; ++c) to[2 * c] = from[c * col];
    }
  }
}

void PackRows::set(ConstMatrix from) {
  rows = from.rows;
  depth = from.cols;
  codes.assign(pack_depths(depth) * rows * kPackDepth, 0);
  scales.assign(pack_depths(depth) * rows, 0.0f);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t block = 0; block < pack_depths(depth); ++block) {
      const std::size_t begin = block * kPackDepth;
      const float* x = from.row(r) + begin;
      const std::size_t count = std::min(kPackDepth, depth - begin);
      float most = 0;
      for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::fabs(x[i]));
      const float scale = most / 32767.0f;
      if (!(scale >= 0x1p-126f)) continue;  // its inverse would not be finite
      const float inverse = 1.0f / scale;
      std::int16_t* out = codes.data() + (block * rows + r) * kPackDepth;
      scales[block * rows + r] = scale;
      for (std::size_t i = 0; i < count; ++i) {
        // Adding 1.5 · 2^23 leaves the nearest integer in the low bits of the sum.
        const float sum = x[i] * inverse + 12582912.0f;
        out[i] = static_cast<std::int16_t>(std::bit_cast<std::uint32_t>(sum) & 0xffff);
      }
    }
  }
}

void pack_product(const PackRows& a, const PackMatrix& b, std::size_t depth, std::size_t begin,
                  std::size_t end, MutableMatrix out) {
  std::vector<float> strip_sums(a.rows * kPackStrip);
  for (std::size_t strip = begin; strip < end; ++strip) {
    std::ranges::fill(strip_sums, 0.0f);
    for (std::size_t block = 0; block < pack_depths(depth); ++block) {
      HWY_DYNAMIC_DISPATCH(AddBlock)
      (a.codes.data() + block * a.rows * kPackDepth, a.scales.data() + block * a.rows, a.rows,
       b.at(strip, block), strip_sums.data(), kPackStrip);
    }
    const std::size_t col = strip * kPackStrip;
    const std::size_t count = std::min(kPackStrip, b.cols - col);
    for (std::size_t r = 0; r < a.rows; ++r) {
      std::copy_n(strip_sums.data() + r * kPackStrip, count, out.row(r) + col);
    }
  }
}

void PackBlocks::add(std::size_t size, std::span<const float> matrix) {
  Block block{size, (size + kColumns - 1) / kColumns * kColumns, data_.size()};
  data_.resize(data_.size() + size * block.stride);
  for (std::size_t i = 0; i < size; ++i) {
    std::ranges::copy(matrix.subspan(i * size, size), data_.begin() + block.at + i * block.stride);
  }
  blocks_.push_back(block);
}

void PackBlocks::apply(MutableMatrix rows, std::span<const float> before,
                       std::span<const float> after) const {
  std::vector<float> out;
  std::size_t at = 0;
  for (const Block& block : blocks_) {
    out.resize(rows.rows * block.stride);
    for (std::size_t r = 0; !before.empty() && r < rows.rows; ++r) {
      for (std::size_t i = at; i < at + block.size; ++i) rows.row(r)[i] += before[i];
    }
    HWY_DYNAMIC_DISPATCH(ApplyBlock)
    (rows.data + at, rows.stride, rows.rows, block.size, data_.data() + block.at, block.stride,
     out.data());
    for (std::size_t r = 0; r < rows.rows; ++r) {
      float* to = rows.row(r) + at;
      const float* from = out.data() + r * block.stride;
      for (std::size_t i = 0; i < block.size; ++i) {
        to[i] = after.empty() ? from[i] : from[i] + after[at + i];
      }
    }
    at += block.size;
  }
}

std::vector<float> inverse_of(std::size_t n, std::span<const float> matrix) {
  std::vector<double> lower(n * n);  // matrix = lower · lower^T
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = matrix[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      require(i != j || sum > 0, "the metric of a basis for packing is not positive definite");
      lower[i * n + j] = i == j ? std::sqrt(sum) : sum / lower[j * n + j];
    }
  }
  // Row c of `columns`: column c of lower^-1.
  std::vector<double> columns(n * n);
  for (std::size_t c = 0; c < n; ++c) {
    double* x = columns.data() + c * n;
    for (std::size_t i = c; i < n; ++i) {
      double sum = i == c ? 1 : 0;
      for (std::size_t k = c; k < i; ++k) sum -= lower[i * n + k] * x[k];
      x[i] = sum / lower[i * n + i];
    }
  }
  std::vector<float> out(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (std::size_t k = i; k < n; ++k) sum += columns[i * n + k] * columns[j * n + k];
      out[i * n + j] = out[j * n + i] = static_cast<float>(sum);
    }
  }
  require(first_not_finite(out) == out.size(), "the metric of a basis for packing has no inverse");
  return out;
}

}  // namespace ballast::kernels
#endif
