#include "gemm/float_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gemm/float_dot.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include <cstring>

#include "base/fail.h"
#include "gemm/float_dequant-inl.h"

// The loops over a tile must unroll for its sums to stay in registers.
#ifdef __clang__
#define BALLAST_UNROLL _Pragma("clang loop unroll(full)")
#else
#define BALLAST_UNROLL _Pragma("GCC unroll 8")
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {

/// The last n % kStep numbers, which only the float types have, with zeros behind them.
template <class Read>
HWY_INLINE void read_rest(const std::byte* row, std::size_t n, FloatVec& a, FloatVec& b) {
  const std::size_t done = n / kStep * kStep;
  HWY_ALIGN std::byte rest[4 * kStep] = {};
  std::memcpy(rest, row + Read::bytes(done), Read::bytes(n - done));
  Read::step(rest, 0, a, b);
}

HWY_INLINE void rest_of(const float* x, std::size_t n, FloatVec& a, FloatVec& b) {
  read_rest<WeightsF32>(reinterpret_cast<const std::byte*>(x), n, a, b);
}

template <class Read, std::size_t R, std::size_t M>
void DotTile(std::size_t n, Tile& tile) {
  const FloatTag d;
  FloatVec sums[R][M];
  BALLAST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    BALLAST_UNROLL
    for (std::size_t j = 0; j < M; ++j) sums[r][j] = hn::Zero(d);
  }
  for (std::size_t i = 0; i + kStep <= n; i += kStep) {
    FloatVec a[R], b[R];
    BALLAST_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      // Rows are short for the processor's own prefetching. Into the second-level cache: the first
      // one cannot wait for as many lines as memory needs to be busy.
      if constexpr (M == 1) __builtin_prefetch(tile.rows[r] + Read::bytes(i) + tile.ahead, 0, 2);
      Read::step(tile.rows[r], i, a[r], b[r]);
    }
    BALLAST_UNROLL
    for (std::size_t j = 0; j < M; ++j) {
      const auto xa = hn::LoadU(d, tile.xs[j] + i);
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) sums[r][j] = hn::MulAdd(a[r], xa, sums[r][j]);
      const auto xb = hn::LoadU(d, tile.xs[j] + i + kLanes);
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) sums[r][j] = hn::MulAdd(b[r], xb, sums[r][j]);
    }
  }
  if constexpr (!Read::kBlocks) {
    if (n % kStep != 0) {
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        FloatVec a, b, xa, xb;
        read_rest<Read>(tile.rows[r], n, a, b);
        BALLAST_UNROLL
        for (std::size_t j = 0; j < M; ++j) {
          rest_of(tile.xs[j], n, xa, xb);
          sums[r][j] = hn::MulAdd(b, xb, hn::MulAdd(a, xa, sums[r][j]));
        }
      }
    }
  }
  BALLAST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    BALLAST_UNROLL
    for (std::size_t j = 0; j < M; ++j) {
      tile.sums[r * kTileColumns + j] = kernels::HWY_NAMESPACE::sum_lanes(sums[r][j]);
    }
  }
}

template <class Read, std::size_t R>
void DotRows(std::size_t n, std::size_t columns, Tile& tile) {
  switch (columns) {
    case 1:
      return DotTile<Read, R, 1>(n, tile);
    case 2:
      return DotTile<Read, R, 2>(n, tile);
    case 3:
      return DotTile<Read, R, 3>(n, tile);
    case 4:
      return DotTile<Read, R, 4>(n, tile);
    case 5:
      return DotTile<Read, R, 5>(n, tile);
    default:
      return DotTile<Read, R, 6>(n, tile);
  }
}

template <class Read>
void DotAny(std::size_t n, std::size_t rows, std::size_t columns, Tile& tile) {
  if (rows == kTileRows) return DotRows<Read, kTileRows>(n, columns, tile);
  // A few rows are left at the end of a layer: one by one.
  Tile one = tile;
  for (std::size_t r = 0; r < rows; ++r) {
    one.rows[0] = tile.rows[r];
    DotRows<Read, 1>(n, columns, one);
    std::memcpy(tile.sums + r * kTileColumns, one.sums, kTileColumns * sizeof(float));
  }
}

template <class Read>
void Unpack(const std::byte* row, std::size_t n, float* out) {
  const FloatTag d;
  FloatVec a, b;
  std::size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    Read::step(row, i, a, b);
    hn::StoreU(a, d, out + i);
    hn::StoreU(b, d, out + i + kLanes);
  }
  if constexpr (!Read::kBlocks) {
    if (i == n) return;
    HWY_ALIGN float rest[kStep];
    read_rest<Read>(row, n, a, b);
    hn::Store(a, d, rest);
    hn::Store(b, d, rest + kLanes);
    std::memcpy(out + i, rest, (n - i) * sizeof(float));
  }
}

/// Calls `action` with the reader of the type.
template <typename Action>
HWY_INLINE void WithReader(TensorType type, Action&& action) {
  switch (type) {
    case TensorType::f32:
      return action(WeightsF32());
    case TensorType::f16:
      return action(WeightsF16());
    case TensorType::bf16:
      return action(WeightsBf16());
    case TensorType::q4_0:
      return action(WeightsQ4_0());
    case TensorType::q4_1:
      return action(WeightsQ4_1());
    case TensorType::q5_0:
      return action(WeightsQ5_0());
    case TensorType::q5_1:
      return action(WeightsQ5_1());
    case TensorType::q8_0:
      return action(WeightsQ8_0());
    case TensorType::q2_k:
      return action(WeightsQ2_K());
    case TensorType::q3_k:
      return action(WeightsQ3_K());
    case TensorType::q4_k:
      return action(WeightsQ4_K());
    case TensorType::q5_k:
      return action(WeightsQ5_K());
    case TensorType::q6_k:
      return action(WeightsQ6_K());
    case TensorType::iq4_nl:
      return action(WeightsIq4Nl());
    default:
      fail("weights of type {} have no reader", to_string(type));
  }
}

void DotTileOf(TensorType type, std::size_t n, std::size_t rows, std::size_t columns, Tile& tile) {
  WithReader(type, [&](auto read) { DotAny<decltype(read)>(n, rows, columns, tile); });
}

void UnpackRow(TensorType type, const std::byte* row, std::size_t n, float* out) {
  WithReader(type, [&](auto read) { Unpack<decltype(read)>(row, n, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
namespace {
HWY_EXPORT(DotTileOf);
HWY_EXPORT(UnpackRow);
}  // namespace

bool has_row_reader(TensorType type) {
  return is_quantized(type) || type == TensorType::f32 || type == TensorType::f16 ||
         type == TensorType::bf16;
}

void dot_tile(TensorType type, std::size_t n, std::size_t rows, std::size_t columns, Tile& tile) {
  HWY_DYNAMIC_DISPATCH(DotTileOf)(type, n, rows, columns, tile);
}

void unpack_row(TensorType type, const std::byte* row, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(UnpackRow)(type, row, n, out);
}

}  // namespace ballast
#endif
