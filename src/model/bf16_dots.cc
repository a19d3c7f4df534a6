// GCC 12 takes the undefined operands of its own intrinsics for mistakes (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "model/bf16_dots.h"

#include <hwy/base.h>

#include <algorithm>
#include <cstring>

#include "base/cpu.h"
#include "base/fail.h"

namespace ballast {

bool multiplies_bf16(TensorType type) { return type == TensorType::bf16 && has_avx512_bf16(); }

}  // namespace ballast

#if defined(__x86_64__)

#include <immintrin.h>

// Everything from here on may only run where has_avx512_bf16() says so.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#include "base/times-inl.h"
#include "model/row_prefetch-inl.h"

namespace ballast {
namespace bf16 {

constexpr std::size_t kRows = Bf16Tile::kRows;

BALLAST_INLINE __m512 add_dots(__m512 sums, __m512i w, const std::uint16_t* x) {
  return _mm512_dpbf16_ps(sums, (__m512bh)w, (__m512bh)_mm512_loadu_si512(x));
}

/// Unites the sixteen sums of each of four rows: lanes 8 apart, then 4, 2 and 1.
BALLAST_INLINE __m128 unite(const __m512 (&sums)[kRows]) {
  __m128 four[kRows];
  times<kRows>([&](auto r) BALLAST_HERE {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(sums[r]), _mm512_extractf32x8_ps(sums[r], 1));
    four[r] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  });
  _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
  return _mm_add_ps(_mm_add_ps(four[0], four[2]), _mm_add_ps(four[1], four[3]));
}

/// Fewer than 32 numbers with zeros behind them.
BALLAST_INLINE __m512i read_rest(const std::byte* p, std::size_t n) {
  return _mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

/// The dots of four rows, `stride` bytes apart.
BALLAST_INLINE __m128 four_dots(const std::byte* first, std::size_t stride, std::size_t n,
                                const std::uint16_t* x) {
  const Prefetch prefetch(stride);
  __m512 sums[kRows];
  times<kRows>([&](auto r) BALLAST_HERE { sums[r] = _mm512_setzero_ps(); });
  constexpr std::size_t kStep = 128;  // numbers
  const std::byte* p = first;
  std::size_t i = 0;
  for (; i + kStep <= n; i += kStep, p += 2 * kStep) {
    prefetch.rows<2 * kStep>(p, 2 * i);
    times<kStep / 32>([&](auto k) BALLAST_HERE {
      times<kRows>([&](auto r) BALLAST_HERE {
        const __m512i w = _mm512_loadu_si512(p + r * stride + 64 * k);
        sums[r] = add_dots(sums[r], w, x + i + 32 * k);
      });
    });
  }
  for (; i < n; i += 32, p += 64) {
    times<kRows>([&](auto r) BALLAST_HERE {
      const std::byte* row = p + r * stride;
      const __m512i w = n - i < 32 ? read_rest(row, n - i) : _mm512_loadu_si512(row);
      sums[r] = add_dots(sums[r], w, x + i);
    });
  }
  return unite(sums);
}

void round_numbers(const float* x, std::size_t n, std::uint16_t* out) {
  auto part = [&](std::size_t i) BALLAST_HERE {
    const std::size_t left = n - std::min(n, i);
    const auto mask = static_cast<__mmask16>((1u << std::min<std::size_t>(left, 16)) - 1);
    return _mm512_maskz_loadu_ps(mask, x + std::min(n, i));
  };
  for (std::size_t i = 0; i < n; i += 32) {
    _mm512_storeu_si512(out + i, (__m512i)_mm512_cvtne2ps_pbh(part(i + 16), part(i)));
  }
}

template <std::size_t M>
void tile(Bf16Tile& tile, std::size_t n, bool first, bool last) {
  __m512 sums[M][kRows];
  auto for_all = [&](const auto& action) BALLAST_HERE {
    times<M>([&](auto j)
                 BALLAST_HERE { times<kRows>([&](auto r) BALLAST_HERE { action(j, r); }); });
  };
  for_all([&](auto j, auto r) BALLAST_HERE {
    sums[j][r] = first ? _mm512_setzero_ps()
                       : _mm512_load_ps(tile.lanes + (j * kRows + r) * Bf16Tile::kLanes);
  });
  for (std::size_t i = 0; i < n; i += 32) {
    __m512i w[kRows];
    times<kRows>([&](auto r) BALLAST_HERE { w[r] = _mm512_loadu_si512(tile.rows[r] + i); });
    for_all([&](auto j, auto r)
                BALLAST_HERE { sums[j][r] = add_dots(sums[j][r], w[r], tile.xs[j] + i); });
  }
  if (last) {
    times<M>([&](auto j) BALLAST_HERE { _mm_storeu_ps(tile.sums[j], unite(sums[j])); });
  } else {
    for_all([&](auto j, auto r) BALLAST_HERE {
      _mm512_store_ps(tile.lanes + (j * kRows + r) * Bf16Tile::kLanes, sums[j][r]);
    });
  }
}

}  // namespace bf16

void round_to_bf16(const float* x, std::size_t n, std::uint16_t* out) {
  bf16::round_numbers(x, n, out);
}

void pad_bf16(const std::byte* row, std::size_t n, std::uint16_t* out) {
  std::memcpy(out, row, 2 * n);
  std::fill(out + n, out + padded_bf16(n), std::uint16_t{0});
}

void bf16_dots(const std::byte* rows, std::size_t row_bytes, std::size_t count, std::size_t n,
               const std::uint16_t* x, float* out) {
  std::size_t i = 0;
  for (; i + bf16::kRows <= count; i += bf16::kRows) {
    _mm_storeu_ps(out + i, bf16::four_dots(rows + i * row_bytes, row_bytes, n, x));
  }
  for (; i < count; ++i) _mm_store_ss(out + i, bf16::four_dots(rows + i * row_bytes, 0, n, x));
}

void bf16_tile(Bf16Tile& tile, std::size_t n, std::size_t columns, bool first, bool last) {
  switch (columns) {
    case 1:
      return bf16::tile<1>(tile, n, first, last);
    case 2:
      return bf16::tile<2>(tile, n, first, last);
    case 3:
      return bf16::tile<3>(tile, n, first, last);
    case 4:
      return bf16::tile<4>(tile, n, first, last);
    case 5:
      return bf16::tile<5>(tile, n, first, last);
    default:
      return bf16::tile<6>(tile, n, first, last);
  }
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#else

namespace ballast {

// multiplies_bf16() is false everywhere else.
void round_to_bf16(const float*, std::size_t, std::uint16_t*) { fail("no bfloat16 products"); }
void pad_bf16(const std::byte*, std::size_t, std::uint16_t*) { fail("no bfloat16 products"); }
void bf16_dots(const std::byte*, std::size_t, std::size_t, std::size_t, const std::uint16_t*,
               float*) {
  fail("no bfloat16 products");
}
void bf16_tile(Bf16Tile&, std::size_t, std::size_t, bool, bool) { fail("no bfloat16 products"); }

}  // namespace ballast

#endif
