// Products of many activations with weights that are unpacked first.
#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fail.h"
#include "model/integer_dots.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_INTEGERS_TARGET)
#include "model/integer_floats-inl.h"
#include "model/integer_lanes-inl.h"

namespace ballast {
namespace integers {
namespace {

/// How a panel is gone over.
struct Folding {
  int folds, pairs;           ///< of numbers
  int offsets, offset_pairs;  ///< of offsets
  std::size_t sums;           ///< where an IntegerTile has their sums
  constexpr int all_pairs() const { return folds * pairs + offsets * offset_pairs; }
};

template <typename Type>
constexpr Folding folding() {
  constexpr int kPairs = kSpan / 2 / Type::kFolds;
  if constexpr (!Type::kOffset) {
    return {Type::kFolds, kPairs, 0, 0, 0};
  } else if constexpr (Type::kPlain) {
    return {Type::kFolds, kPairs, 8, 1, IntegerTile::kSums32};
  } else {
    return {Type::kFolds, kPairs, 1, 256 / Type::kGroup,
            Type::kGroup == 32 ? IntegerTile::kSums32 : IntegerTile::kSums16};
  }
}

/// Bytes from -128 to 127, four of each row, as words: bytes 0 and 2, then 1 and 3.
BALLAST_INLINE void store_words(__m512i bytes, std::int32_t (*out)[kLanes]) {
  _mm512_store_si512(out[0], _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
  _mm512_store_si512(out[1], _mm512_srai_epi16(bytes, 8));
}
BALLAST_INLINE void store_words(__m512i bytes, __m512i scale, std::int32_t (*out)[kLanes]) {
  const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
  _mm512_store_si512(out[0], _mm512_mullo_epi16(even, scale));
  _mm512_store_si512(out[1], _mm512_mullo_epi16(_mm512_srai_epi16(bytes, 8), scale));
}

/// Asks for a span of row r of those that come after a panel.
BALLAST_INLINE void ask_for_row(const IntegerPanel& panel, std::size_t r) {
  const std::byte* row = panel.next.first + r * panel.next.row_bytes;
  for (std::size_t i = 0; i < panel.next.bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(row + i), _MM_HINT_T1);
  }
}

/// Numbers 0 to 15 and 16 to 31, in the lower words of their lanes, in the order of IntegerTile's
/// pairs.
BALLAST_INLINE __m512i pairs_of_words(__m512i former, __m512i latter) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::int16_t, 32> order{};
    for (std::size_t i = 0; i < 32; ++i) {
      constexpr std::size_t kOfFour[] = {0, 2, 1, 3};
      order[i] = static_cast<std::int16_t>(2 * (i / 4 * 4 + kOfFour[i % 4]));
    }
    return order;
  }();
  return _mm512_permutex2var_epi16(former, _mm512_load_si512(kOrder.data()), latter);
}

/// The pair of int16 that a sum, in its two parts, is multiplied with.
BALLAST_INLINE __m512i four_and_one() { return _mm512_set1_epi32(1 << 16 | 4); }

template <typename Type>
requires(Type::kPlain) BALLAST_INLINE
    void fill(const Bytes (&p)[kLanes], std::size_t half, IntegerPanel& panel) {
  constexpr Folding kFolding = folding<Type>();
  std::int32_t(*lines)[kLanes] = panel.lines[half];
  auto* scales = lines + kFolding.all_pairs();
  for (std::size_t b = 0; b < 8; ++b) {
    ask_for_row(panel, 8 * half + b);
    const std::size_t at = b * Type::kBytes;
    Bytes64<4> raw[kRaws<Type>];
    times<kRaws<Type>>([&](auto i) BALLAST_HERE { raw[i] = transposed(p, at + Type::kRaw[i]); });
    const FifthOfLanes fifth = fifth_of_lanes<Type>(p, at);
    times<2>([&](auto h) BALLAST_HERE {
      const Bytes64<4> numbers = Type::template numbers<h>(raw, fifth);
      times<4>([&](auto d) BALLAST_HERE {
        const __m512i bytes =
            _mm512_sub_epi8(numbers.v[d], _mm512_set1_epi8(static_cast<char>(Type::kZero)));
        store_words(bytes, lines + 16 * b + 8 * h + 2 * d);
      });
    });
    _mm512_store_ps(scales[b], f16_of_lanes(p, at));
    if constexpr (Type::kOffset) {
      _mm512_store_si512(lines[kSpan / 2 + b], four_and_one());
      _mm512_store_ps(scales[8 + b], f16_of_lanes(p, at + 2));
    }
  }
}

/// Byte g of sixteen rows in both words of their lanes, in the upper byte of each or in the lower.
template <int g, bool upper>
BALLAST_INLINE __m512i byte_of_lanes(const Bytes64<4>& bytes) {
  constexpr int at = g % 4, zero = 0x80;
  constexpr int kWord = upper ? at << 8 | zero : zero << 8 | at;
  auto lane = [](int i) {
    const int up = i * 4 << 8 | i * 4;  // lanes of 128 bits are shuffled each for itself
    const int word = upper ? kWord + (up & 0xff00) : kWord + (up & 0xff);
    return word << 16 | word;
  };
  const __m128i index = _mm_setr_epi32(lane(0), lane(1), lane(2), lane(3));
  return _mm512_shuffle_epi8(bytes.v[g / 4], _mm512_broadcast_i32x4(index));
}

template <typename Type>
requires(Type::kFloat) BALLAST_INLINE
    void fill(const Bytes (&p)[kLanes], std::size_t half, IntegerPanel& panel) {
  std::int32_t(*lines)[kLanes] = panel.lines[half];
  alignas(64) std::int16_t words[kLanes][kSpan];
  alignas(64) float factors[kLanes], scales[kLanes];
  for (std::size_t r = 0; r < kLanes; r += 4) {
    const FloatScales of_four = float_scales<Type>({p[r], p[r + 1], p[r + 2], p[r + 3]});
    _mm_store_ps(factors + r, of_four.factors);
    _mm_store_ps(scales + r, of_four.scales);
  }
  Bytes rows[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) {
    if (r % 2 == 0) ask_for_row(panel, 8 * half + r / 2);
    const __m512 factor = _mm512_set1_ps(factors[r]);
    times<kSpan / 32>([&](auto b) BALLAST_HERE {
      const __m512i former = float_words<Type>(p[r] + 64 * b, factor);
      const __m512i latter = float_words<Type>(p[r] + 64 * b + 32, factor);
      _mm512_store_si512(words[r] + 32 * b, pairs_of_words(former, latter));
    });
    rows[r] = reinterpret_cast<Bytes>(words[r]);
  }
  for (std::size_t i = 0; i < kSpan / 8; ++i) {
    const Bytes64<4> pairs = transposed(rows, 16 * i);
    times<4>([&](auto d) BALLAST_HERE { _mm512_store_si512(lines[4 * i + d], pairs.v[d]); });
  }
  times<Type::kFolds>([&](auto f) BALLAST_HERE {
    _mm512_store_ps(lines[folding<Type>().all_pairs() + f], _mm512_load_ps(scales));
  });
}

template <typename Type>
requires(!Type::kPlain && !Type::kFloat) BALLAST_INLINE
    void fill(const Bytes (&p)[kLanes], std::size_t half, IntegerPanel& panel) {
  constexpr Folding kFolding = folding<Type>();
  std::int32_t(*lines)[kLanes] = panel.lines[half];
  alignas(64) std::uint8_t scale_bytes[kLanes][16], offset_bytes[kLanes][16];
  Bytes scale_rows[kLanes], offset_rows[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    const Integers integers = Type::scales(p[r]);
    store_16(scale_bytes[r], integers.scales);
    if (Type::kOffset) store_16(offset_bytes[r], integers.offsets);
    scale_rows[r] = scale_bytes[r];
    offset_rows[r] = offset_bytes[r];
  }
  const Bytes64<4> scales = transposed(scale_rows, 0);
  times<4>([&](auto part) BALLAST_HERE {
    constexpr int kLatter = part / 2, piece = part % 2;
    ask_for_row(panel, 8 * half + 2 * part);
    ask_for_row(panel, 8 * half + 2 * part + 1);
    Bytes64<4> raw[kRaws<Type>];
    times<kRaws<Type>>(
        [&](auto i) BALLAST_HERE { raw[i] = transposed(p, Type::kRaw[i][kLatter] + 16 * piece); });
    times<4>([&](auto j) BALLAST_HERE {
      constexpr int kChunk = chunk<Type>(j) + Type::kDistance * kLatter;
      constexpr int group = Type::kGroup == 32 ? kChunk : 2 * kChunk + piece;
      const Bytes64<4> numbers = Type::template numbers<j>(RawOfLanes<Type, kLatter>{raw});
      const __m512i scale = _mm512_srai_epi16((byte_of_lanes<group, true>(scales)), 8);
      times<4>([&](auto d) BALLAST_HERE {
        const __m512i bytes = _mm512_sub_epi8(numbers.v[d], _mm512_set1_epi8(Type::kZero));
        store_words(bytes, scale, lines + 16 * kChunk + 8 * piece + 2 * d);
      });
    });
  });
  auto* float_lines = lines + kFolding.all_pairs();
  const __m512 scale = f16_of_lanes(p, Type::kScale);
  times<Type::kFolds>([&](auto f) { _mm512_store_ps(float_lines[f], scale); });
  if constexpr (Type::kOffset) {
    const Bytes64<4> offsets = transposed(offset_rows, 0);
    times<256 / Type::kGroup>([&](auto g) BALLAST_HERE {
      const __m512i m = byte_of_lanes<g, false>(offsets);
      _mm512_store_si512(lines[kSpan / 2 + g], _mm512_mullo_epi16(m, four_and_one()));
    });
    const __m512 negative = _mm512_sub_ps(_mm512_setzero_ps(), f16_of_lanes(p, Type::kScale + 2));
    _mm512_store_ps(float_lines[Type::kFolds], negative);
  }
}

/// Fills half `half` with `count` rows, the first at `first`; `numbers` of the span are there.
template <typename Type>
void fill_half(Bytes first, std::size_t stride, std::size_t count, std::size_t numbers,
               std::size_t half, IntegerPanel& panel) {
  Bytes p[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) p[r] = first + std::min(r, count - 1) * stride;
  if (numbers == kSpan) return fill<Type>(p, half, panel);
  std::uint8_t padded[kLanes][kSpanBytes<Type>] = {};
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::memcpy(padded[r], p[r], numbers / Type::kNumbers * Type::kBytes);
    p[r] = padded[r];
  }
  fill<Type>(p, half, panel);
}

/// Adds a span to the totals of 32 rows and M activations.
template <int M>
void multiply_tile(const Folding& folding, const IntegerPanel& panel, const IntegerTile& x,
                   bool ask, float (*totals)[IntegerPanel::kRows]) {
  constexpr std::size_t kColumns = IntegerTile::kColumns;
  alignas(64) float sums[2][M][kLanes];
  const std::int32_t(*first)[kLanes] = panel.lines[0], (*second)[kLanes] = panel.lines[1];
  const std::int32_t(*first_scale)[kLanes] = first + folding.all_pairs();
  const std::int32_t(*second_scale)[kLanes] = second + folding.all_pairs();
  const std::int16_t(*pairs)[kColumns][2] = x.pairs;
  const int folds = folding.folds + folding.offsets;
  std::size_t asked = IntegerPanel::kRows / 2;
  // Fold f, of `count` pairs; a multiple of `together` are multiplied between two checks.
  const auto fold = [&](int f, int count, auto together, bool asks) BALLAST_HERE {
    __m512i a[M], b[M];
    times<M>([&](auto c) BALLAST_HERE { a[c] = b[c] = _mm512_setzero_si512(); });
    for (int k = 0; k < count; k += together) {
      if (asks) ask_for_row(panel, asked++);
      times<together>([&](auto i) BALLAST_HERE {
        const __m512i u = _mm512_load_si512(first + i), v = _mm512_load_si512(second + i);
        times<M>([&](auto c) BALLAST_HERE {
          __m512i pair;
          asm("vpbroadcastd %1, %0" : "=v"(pair) : "m"(pairs[i][c]));
          add_products(a[c], u, pair);
          add_products(b[c], v, pair);
        });
      });
      first += together;
      second += together;
      pairs += together;
    }
    const __m512 u = _mm512_load_ps(first_scale++), v = _mm512_load_ps(second_scale++);
    const bool last = f + 1 == folds;
    times<M>([&](auto c) BALLAST_HERE {
      __m512 s = _mm512_cvtepi32_ps(a[c]), t = _mm512_cvtepi32_ps(b[c]);
      if (f == 0) {
        s = _mm512_mul_ps(s, u);
        t = _mm512_mul_ps(t, v);
      } else {
        s = _mm512_fmadd_ps(s, u, _mm512_load_ps(sums[0][c]));
        t = _mm512_fmadd_ps(t, v, _mm512_load_ps(sums[1][c]));
      }
      if (!last) {
        _mm512_store_ps(sums[0][c], s);
        _mm512_store_ps(sums[1][c], t);
      } else {
        const __m512 scale = _mm512_set1_ps(x.scale[c]);
        float* out = totals[c];
        _mm512_storeu_ps(out, _mm512_fmadd_ps(s, scale, _mm512_loadu_ps(out)));
        _mm512_storeu_ps(out + kLanes, _mm512_fmadd_ps(t, scale, _mm512_loadu_ps(out + kLanes)));
      }
    });
  };
  for (int f = 0; f < folding.folds; ++f) {
    fold(f, folding.pairs, std::integral_constant<int, 8>(), ask);
  }
  pairs = x.pairs + folding.sums;
  for (int f = folding.folds; f < folds; ++f) {
    fold(f, folding.offset_pairs, std::integral_constant<int, 1>(), false);
  }
}

}  // namespace
}  // namespace integers

void fill_panel(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                std::size_t n, std::size_t span, std::size_t ahead, IntegerPanel& out) {
  constexpr std::size_t kLanes = integers::kLanes;
  integers::with_any_type(type, [&](auto t) {
    using Type = decltype(t);
    const std::size_t numbers = std::min(kSpan, n - span * kSpan);
    const integers::Bytes first = integers::bytes(rows) + span * integers::kSpanBytes<Type>;
    constexpr std::size_t kBytes = integers::kSpanBytes<Type>;
    const bool last = span + 1 == spans_of(n);
    out.next = {rows + (last ? ahead * row_bytes : (span + 1) * kBytes), row_bytes, kBytes};
    integers::fill_half<Type>(first, row_bytes, std::min(count, kLanes), numbers, 0, out);
    if (count <= kLanes) return;
    integers::fill_half<Type>(first + kLanes * row_bytes, row_bytes, count - kLanes, numbers, 1,
                              out);
  });
}

void multiply_panel(TensorType type, const IntegerPanel& panel, const IntegerTile& x,
                    std::size_t columns, bool ask, float (*totals)[IntegerPanel::kRows]) {
  const integers::Folding folding =
      integers::with_any_type(type, [](auto t) { return integers::folding<decltype(t)>(); });
  switch (columns) {
    case 1:
      return integers::multiply_tile<1>(folding, panel, x, ask, totals);
    case 2:
      return integers::multiply_tile<2>(folding, panel, x, ask, totals);
    case 3:
      return integers::multiply_tile<3>(folding, panel, x, ask, totals);
    case 4:
      return integers::multiply_tile<4>(folding, panel, x, ask, totals);
    case 5:
      return integers::multiply_tile<5>(folding, panel, x, ask, totals);
    default:
      return integers::multiply_tile<6>(folding, panel, x, ask, totals);
  }
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#else

namespace ballast {

// multiplies_integers() is false everywhere else.
void fill_panel(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t, std::size_t,
                std::size_t, IntegerPanel&) {
  fail("no integer products");
}
void multiply_panel(TensorType, const IntegerPanel&, const IntegerTile&, std::size_t, bool,
                    float (*)[IntegerPanel::kRows]) {
  fail("no integer products");
}

}  // namespace ballast

#endif
