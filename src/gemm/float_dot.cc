#include "gemm/float_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gemm/float_dot.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include <cstring>

#include "base/fail.h"
#include "gemm/float_dequant-inl.h"
#include "simd/prefetch.h"

// Unrolled loops keep the sums of a tile in registers.
#ifdef __clang__
#define BALLAST_UNROLL _Pragma("clang loop unroll(full)")
#else
#define BALLAST_UNROLL _Pragma("GCC unroll 8")
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {

/// The last k % kStep elements, padded with zeros. Only float types have any.
template <class Weights>
HWY_INLINE void load_rest(const std::byte* row, std::size_t k, FloatVec& a, FloatVec& b) {
  const std::size_t done = k / kStep * kStep;
  HWY_ALIGN std::byte rest[4 * kStep] = {};
  std::memcpy(rest, row + Weights::bytes(done), Weights::bytes(k - done));
  Weights::load(rest, 0, a, b);
}

HWY_INLINE void load_rest_f32(const float* x, std::size_t k, FloatVec& a, FloatVec& b) {
  load_rest<WeightsF32>(reinterpret_cast<const std::byte*>(x), k, a, b);
}

template <class Weights, std::size_t R, std::size_t M>
void DotTile(std::size_t k, Tile& tile) {
  const FloatTag d;
  FloatVec sums[R][M];
  BALLAST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    BALLAST_UNROLL
    for (std::size_t j = 0; j < M; ++j) sums[r][j] = hn::Zero(d);
  }
  for (std::size_t i = 0; i + kStep <= k; i += kStep) {
    FloatVec a[R], b[R];
    BALLAST_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      // Rows are too short for the hardware prefetcher.
      if constexpr (M == 1) prefetch(tile.rows[r] + Weights::bytes(i) + tile.ahead);
      Weights::load(tile.rows[r], i, a[r], b[r]);
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
  if constexpr (!Weights::kBlocks) {
    if (k % kStep != 0) {
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        FloatVec a, b, xa, xb;
        load_rest<Weights>(tile.rows[r], k, a, b);
        BALLAST_UNROLL
        for (std::size_t j = 0; j < M; ++j) {
          load_rest_f32(tile.xs[j], k, xa, xb);
          sums[r][j] = hn::MulAdd(b, xb, hn::MulAdd(a, xa, sums[r][j]));
        }
      }
    }
  }
  BALLAST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    BALLAST_UNROLL
    for (std::size_t j = 0; j < M; ++j) {
      tile.sums[r * kTileM + j] = kernels::HWY_NAMESPACE::sum_lanes(sums[r][j]);
    }
  }
}

template <class Weights, std::size_t R>
void DotRows(std::size_t k, std::size_t m, Tile& tile) {
  switch (m) {
    case 1:
      return DotTile<Weights, R, 1>(k, tile);
    case 2:
      return DotTile<Weights, R, 2>(k, tile);
    case 3:
      return DotTile<Weights, R, 3>(k, tile);
    case 4:
      return DotTile<Weights, R, 4>(k, tile);
    case 5:
      return DotTile<Weights, R, 5>(k, tile);
    default:
      return DotTile<Weights, R, 6>(k, tile);
  }
}

template <class Weights>
void DotAny(std::size_t k, std::size_t n, std::size_t m, Tile& tile) {
  if (n == kTileN) return DotRows<Weights, kTileN>(k, m, tile);
  // The last rows of a layer, one at a time.
  Tile one = tile;
  for (std::size_t r = 0; r < n; ++r) {
    one.rows[0] = tile.rows[r];
    DotRows<Weights, 1>(k, m, one);
    std::memcpy(tile.sums + r * kTileM, one.sums, kTileM * sizeof(float));
  }
}

template <class Weights>
void DequantizeRow(const std::byte* row, std::size_t k, float* out) {
  const FloatTag d;
  FloatVec a, b;
  std::size_t i = 0;
  for (; i + kStep <= k; i += kStep) {
    Weights::load(row, i, a, b);
    hn::StoreU(a, d, out + i);
    hn::StoreU(b, d, out + i + kLanes);
  }
  if constexpr (!Weights::kBlocks) {
    if (i == k) return;
    HWY_ALIGN float rest[kStep];
    load_rest<Weights>(row, k, a, b);
    hn::Store(a, d, rest);
    hn::Store(b, d, rest + kLanes);
    std::memcpy(out + i, rest, (k - i) * sizeof(float));
  }
}

/// Calls `action` with the type's struct of float_dequant-inl.h.
template <typename Action>
HWY_INLINE void WithWeights(TensorType type, Action&& action) {
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
    case TensorType::fp4:
      return action(WeightsFp4());
    default:
      fail("weights of type {} have no float kernel", to_string(type));
  }
}

void DotTileOfType(TensorType type, std::size_t k, std::size_t n, std::size_t m, Tile& tile) {
#if defined(__x86_64__) && HWY_TARGET <= HWY_AVX2
  // has_int_gemm() is true of every other type.
  require(type == TensorType::f32, "weights of type {} have no float dots here", to_string(type));
  DotAny<WeightsF32>(k, n, m, tile);
#else
  WithWeights(type, [&](auto weights) { DotAny<decltype(weights)>(k, n, m, tile); });
#endif
}

void Dequantize(TensorType type, const std::byte* row, std::size_t k, float* out) {
  WithWeights(type, [&](auto weights) { DequantizeRow<decltype(weights)>(row, k, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
namespace {
HWY_EXPORT(DotTileOfType);
HWY_EXPORT(Dequantize);
}  // namespace

bool has_float_kernel(TensorType type) {
  return is_quantized(type) || type == TensorType::f32 || type == TensorType::f16 ||
         type == TensorType::bf16;
}

void dot_tile(TensorType type, std::size_t k, std::size_t n, std::size_t m, Tile& tile) {
  HWY_DYNAMIC_DISPATCH(DotTileOfType)(type, k, n, m, tile);
}

void dequantize(TensorType type, const std::byte* row, std::size_t k, float* out) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(type, row, k, out);
}

}  // namespace ballast
#endif
