// Products of many activations with weights that are unpacked first. Included once for each set of
// instructions, after its vectors, inside a region of its target.
#pragma once

#include "gemm/f16_to_i16-inl.h"
#include "gemm/small_batch-inl.h"

namespace ballast::gemm::BALLAST_VECTORS {

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

/// Sixteen rows side by side; the next line is behind them.
constexpr std::size_t kLine = IntegerPanel::kRows / 2;

/// kLanes rows of a panel that are filled in, or read.
struct Part {
  IntegerPanel& panel;
  std::size_t number;  ///< of so many rows

  static constexpr std::size_t kOfHalf = kLine / kLanes, kCount = 2 * kOfHalf;
  std::int32_t* line(std::size_t i) const {
    return panel.lines[number / kOfHalf][i] + number % kOfHalf * kLanes;
  }
};

/// Asks for a span of row r of those that come after a panel.
BALLAST_INLINE void ask_for_row(const IntegerPanel& panel, std::size_t r) {
  const std::byte* row = panel.next.first + r * panel.next.row_bytes;
  for (std::size_t i = 0; i < panel.next.bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(row + i), _MM_HINT_T1);
  }
}
/// In eight steps for each part, for half of these rows.
BALLAST_INLINE void ask(Part part, std::size_t step) {
  if (step % Part::kOfHalf == 0) ask_for_row(part.panel, (8 * part.number + step) / Part::kOfHalf);
}

/// Bytes from -128 to 127, four of each row, as words: bytes 0 and 2, then 1 and 3.
BALLAST_INLINE void store_words(Vector bytes, Part part, std::size_t line) {
  store_lanes(part.line(line), signed_right_16<8>(left_16<8>(bytes)));
  store_lanes(part.line(line + 1), signed_right_16<8>(bytes));
}
BALLAST_INLINE void store_words(Vector bytes, Vector scale, Part part, std::size_t line) {
  const Vector even = signed_right_16<8>(left_16<8>(bytes));
  store_lanes(part.line(line), multiply_16(even, scale));
  store_lanes(part.line(line + 1), multiply_16(signed_right_16<8>(bytes), scale));
}

/// The pair of int16 that a sum, in its two parts, is multiplied with.
BALLAST_INLINE Vector four_and_one() { return all_32(1 << 16 | 4); }

template <typename Type>
requires(Type::kPlain) BALLAST_INLINE void fill(const Bytes (&p)[kLanes], Part part) {
  constexpr std::size_t kScales = folding<Type>().all_pairs();
  for (std::size_t b = 0; b < 8; ++b) {
    ask(part, b);
    const std::size_t at = b * Type::kBytes;
    Vectors<4> raw[kRaws<Type>];
    unroll<kRaws<Type>>([&](auto i)
                            BALLAST_INLINE_LAMBDA { raw[i] = transposed(p, at + Type::kRaw[i]); });
    const FifthOfLanes fifth = fifth_of_lanes<Type>(p, at);
    unroll<2>([&](auto h) BALLAST_INLINE_LAMBDA {
      const Vectors<4> numbers = Type::template numbers<h>(raw, fifth);
      unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA {
        store_words(subtract_8(numbers.v[d], all_8(Type::kZero)), part, 16 * b + 8 * h + 2 * d);
      });
    });
    store_floats(part.line(kScales + b), f16_of_lanes(p, at));
    if constexpr (Type::kOffset) {
      store_lanes(part.line(kSpan / 2 + b), four_and_one());
      store_floats(part.line(kScales + 8 + b), f16_of_lanes(p, at + 2));
    }
  }
}

/// Byte g of each row in both words of its lane, in the upper byte of each or in the lower.
template <int g, bool upper>
BALLAST_INLINE Vector byte_of_lanes(const Vectors<4>& bytes) {
  constexpr int at = g % 4, zero = 0x80;
  constexpr int kWord = upper ? at << 8 | zero : zero << 8 | at;
  auto lane = [](int i) {
    const int up = i * 4 << 8 | i * 4;  // each 128 bits are shuffled for themselves
    const int word = upper ? kWord + (up & 0xff00) : kWord + (up & 0xff);
    return word << 16 | word;
  };
  const __m128i index = _mm_setr_epi32(lane(0), lane(1), lane(2), lane(3));
  return shuffle_8(bytes.v[g / 4], all_16_bytes(index));
}

template <typename Type>
requires(!Type::kPlain && !Type::kFloat) BALLAST_INLINE
    void fill(const Bytes (&p)[kLanes], Part part) {
  constexpr std::size_t kScales = folding<Type>().all_pairs();
  alignas(64) std::uint8_t scale_bytes[kLanes][16], offset_bytes[kLanes][16];
  Bytes scale_rows[kLanes], offset_rows[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    const Integers integers = Type::scales(p[r]);
    store_16(scale_bytes[r], integers.scales);
    if (Type::kOffset) store_16(offset_bytes[r], integers.offsets);
    scale_rows[r] = scale_bytes[r];
    offset_rows[r] = offset_bytes[r];
  }
  const Vectors<4> scales = transposed(scale_rows, 0);
  unroll<4>([&](auto quarter) BALLAST_INLINE_LAMBDA {
    constexpr int kLatter = quarter / 2, piece = quarter % 2;
    ask(part, 2 * quarter);
    ask(part, 2 * quarter + 1);
    Vectors<4> raw[kRaws<Type>];
    unroll<kRaws<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
      raw[i] = transposed(p, Type::kRaw[i][kLatter] + 16 * piece);
    });
    unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
      constexpr int kChunk = chunk<Type>(j) + Type::kDistance * kLatter;
      constexpr int group = Type::kGroup == 32 ? kChunk : 2 * kChunk + piece;
      const Vectors<4> numbers = Type::template numbers<j>(RawHalf<Type, kLatter, 4>{raw});
      const Vector scale = signed_right_16<8>(byte_of_lanes<group, true>(scales));
      unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA {
        const Vector bytes = subtract_8(numbers.v[d], all_8(Type::kZero));
        store_words(bytes, scale, part, 16 * kChunk + 8 * piece + 2 * d);
      });
    });
  });
  const Floats scale = f16_of_lanes(p, Type::kScale);
  unroll<Type::kFolds>([&](auto f)
                           BALLAST_INLINE_LAMBDA { store_floats(part.line(kScales + f), scale); });
  if constexpr (Type::kOffset) {
    const Vectors<4> offsets = transposed(offset_rows, 0);
    unroll<256 / Type::kGroup>([&](auto g) BALLAST_INLINE_LAMBDA {
      const Vector m = byte_of_lanes<g, false>(offsets);
      store_lanes(part.line(kSpan / 2 + g), multiply_16(m, four_and_one()));
    });
    store_floats(part.line(kScales + Type::kFolds), negative(f16_of_lanes(p, Type::kScale + 2)));
  }
}

template <typename Type>
requires(Type::kFloat) BALLAST_INLINE void fill(const Bytes (&p)[kLanes], Part part) {
  alignas(64) std::int16_t words[kLanes][kSpan];
  alignas(64) float factors[kLanes], scales[kLanes];
  for (std::size_t r = 0; r < kLanes; r += 4) {
    const FloatScales of_four = float_scales<Type>({p[r], p[r + 1], p[r + 2], p[r + 3]});
    _mm_store_ps(factors + r, of_four.factors);
    _mm_store_ps(scales + r, of_four.scales);
  }
  constexpr std::size_t kSteps = kLanes / 8;  // rows in which another is asked for
  Bytes rows[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) {
    if (r % kSteps == 0) ask(part, r / kSteps);
    const Floats factor = all_floats(factors[r]);
    unroll<kSpan / (2 * kLanes)>([&](auto b) BALLAST_INLINE_LAMBDA {
      const Bytes at = p[r] + 4 * kLanes * b;
      const Vector former = float_words<Type>(at, factor);
      const Vector latter = float_words<Type>(at + 2 * kLanes, factor);
      store_lanes(words[r] + 2 * kLanes * b, pairs_of_words(former, latter));
    });
    rows[r] = reinterpret_cast<Bytes>(words[r]);
  }
  for (std::size_t i = 0; i < kSpan / 8; ++i) {
    const Vectors<4> pairs = transposed(rows, 16 * i);
    unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA { store_lanes(part.line(4 * i + d), pairs.v[d]); });
  }
  unroll<Type::kFolds>([&](auto f) BALLAST_INLINE_LAMBDA {
    store_floats(part.line(folding<Type>().all_pairs() + f), load_floats(scales));
  });
}

/// Fills a part with `count` rows, the first at `first`; `numbers` of the span are there.
template <typename Type>
void fill_part(Bytes first, std::size_t stride, std::size_t count, std::size_t numbers, Part part) {
  Bytes p[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) p[r] = first + std::min(r, count - 1) * stride;
  if (numbers == kSpan) return fill<Type>(p, part);
  std::uint8_t padded[kLanes][kSpanBytes<Type>] = {};
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::memcpy(padded[r], p[r], numbers / Type::kNumbers * Type::kBytes);
    p[r] = padded[r];
  }
  fill<Type>(p, part);
}

/// fill_panel() of a type.
template <typename Type>
void fill_all(const std::byte* rows, std::size_t row_bytes, std::size_t count, std::size_t n,
              std::size_t span, std::size_t ahead, IntegerPanel& out) {
  constexpr std::size_t kBytes = kSpanBytes<Type>;
  const std::size_t numbers = std::min(kSpan, n - span * kSpan);
  const Bytes first = bytes(rows) + span * kBytes;
  const bool last = span + 1 == spans_of(n);
  out.next = {rows + (last ? ahead * row_bytes : (span + 1) * kBytes), row_bytes, kBytes};
  for (std::size_t r = 0; r < count; r += kLanes) {
    fill_part<Type>(first + r * row_bytes, row_bytes, std::min<std::size_t>(kLanes, count - r),
                    numbers, {out, r / kLanes});
  }
}

void fill_panel(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                std::size_t n, std::size_t span, std::size_t ahead, IntegerPanel& out) {
  with_any_type(
      type, [&](auto t) { fill_all<decltype(t)>(rows, row_bytes, count, n, span, ahead, out); });
}

/// Lines of kLanes rows at two places, and where their totals are.
struct TileRows {
  const std::int32_t *first, *second;
  float *first_totals, *second_totals;
};

/// Adds a span to the totals of 2 · kLanes rows and M activations, whose totals are kRows apart.
template <int M>
BALLAST_INLINE void multiply_tile(const Folding& folding, const IntegerPanel& panel,
                                  const IntegerTile& x, bool ask, TileRows rows) {
  constexpr std::size_t kColumns = IntegerTile::kColumns;
  alignas(64) float sums[2][M][kLanes];
  const std::int32_t* first_scale = rows.first + folding.all_pairs() * kLine;
  const std::int32_t* second_scale = rows.second + folding.all_pairs() * kLine;
  const std::int16_t(*pairs)[kColumns][2] = x.pairs;
  const int folds = folding.folds + folding.offsets;
  std::size_t asked = IntegerPanel::kRows / 2;
  // Fold f, of `count` pairs; a multiple of `together` are multiplied between two checks.
  const auto fold = [&](int f, int count, auto together, bool asks) BALLAST_INLINE_LAMBDA {
    Vector a[M], b[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { a[c] = b[c] = zeros(); });
    for (int k = 0; k < count; k += together) {
      if (asks) ask_for_row(panel, asked++);
      unroll<together>([&](auto i) BALLAST_INLINE_LAMBDA {
        const Vector u = load_lanes(rows.first + i * kLine);
        const Vector v = load_lanes(rows.second + i * kLine);
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
          Vector pair;
          asm("vpbroadcastd %1, %0" : "=v"(pair) : "m"(pairs[i][c]));
          add_products(a[c], u, pair);
          add_products(b[c], v, pair);
        });
      });
      rows.first += together * kLine;
      rows.second += together * kLine;
      pairs += together;
    }
    const Floats u = load_floats(first_scale), v = load_floats(second_scale);
    first_scale += kLine;
    second_scale += kLine;
    const bool last = f + 1 == folds;
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      Floats s = to_floats(a[c]), t = to_floats(b[c]);
      if (f == 0) {
        s = multiply(s, u);
        t = multiply(t, v);
      } else {
        s = multiply_add(s, u, load_floats(sums[0][c]));
        t = multiply_add(t, v, load_floats(sums[1][c]));
      }
      if (!last) {
        store_floats(sums[0][c], s);
        store_floats(sums[1][c], t);
      } else {
        const Floats scale = all_floats(x.scale[c]);
        float* first = rows.first_totals + c * IntegerPanel::kRows;
        float* second = rows.second_totals + c * IntegerPanel::kRows;
        store_floats(first, multiply_add(s, scale, load_floats(first)));
        store_floats(second, multiply_add(t, scale, load_floats(second)));
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

/// multiply_panel() with so many activations.
template <int M>
void multiply_all(const Folding& folding, const IntegerPanel& panel, const IntegerTile& x, bool ask,
                  float (*totals)[IntegerPanel::kRows]) {
  // Halves of the panel beside each other, or of each half.
  constexpr std::size_t kTurns = Part::kOfHalf;
  constexpr std::size_t kHalf = kTurns == 1 ? 1 : 0, kAside = kTurns == 1 ? 0 : kLanes;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    float* of_rows = totals[0] + turn * kLine;
    multiply_tile<M>(
        folding, panel, x, ask && turn == 0,
        {panel.lines[turn][0], panel.lines[turn + kHalf][0] + kAside, of_rows, of_rows + kLanes});
  }
}

void multiply_panel(TensorType type, const IntegerPanel& panel, const IntegerTile& x,
                    std::size_t columns, bool ask, float (*totals)[IntegerPanel::kRows]) {
  static_assert(IntegerTile::kColumns == 6);
  static constexpr decltype(&multiply_all<1>) kOfColumns[] = {multiply_all<1>, multiply_all<2>,
                                                              multiply_all<3>, multiply_all<4>,
                                                              multiply_all<5>, multiply_all<6>};
  const Folding how = with_any_type(type, [](auto t) { return folding<decltype(t)>(); });
  kOfColumns[columns - 1](how, panel, x, ask, totals);
}

}  // namespace ballast::gemm::BALLAST_VECTORS
