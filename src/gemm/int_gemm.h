// Products with weights as integers, for processors with AVX2 or AVX-512 VNNI: of quantized types
// those that they are, of 16-bit floats words.
//
// A row is gone over in spans of 256 numbers. Activations are rounded: in each span to integers
// from -4095 to 4095, times one float32 scale, so that each moves by at most 1/8190 of the largest.
// Quantized weights are not rounded. 16-bit floats are: in each span to integers below 2¹³ in
// magnitude, times the least power of two, so that each moves by at most 2⁻¹³ of the largest, and
// not at all if its last bit is worth one or more. A dot is then, in this order and no other:
//
//   total = 0
//   for each span:  t = 0
//     for each fold of the span:    t = fma(float32(Σ wᵢxᵢ), scale of the fold, t)
//     for each offset of the span:  t = fma(float32(Σ mᵍXᵍ), scale of the offsets, t)
//     total = fma(t, the activations' scale, total)
//
// Folds and offsets are what a type gives one float scale to (docs/design.md lists them): wᵢ, in a
// K type, is the number times its group's integer scale, mᵍ an integer offset of a group, Xᵍ the
// sum of its activations. The sums are exact in 32 bits. (Beyond 2¹¹⁵, which only weights in BF16
// reach, t may overflow where the dot would not.) So every way to make them gives the same
// bits, on every processor, and each is made where it is fastest: a few activations from the bytes
// as they lie, a prompt from panels of sixteen rows side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ballast/engine/tensor.h"
#include "ballast/matrix.h"

namespace ballast {

/// Whether products with weights of this type are made here: the quantized types, F16 and BF16, on
/// processors with has_avx2() or has_avx512_vnni(). F32 is not: its users expect its precision.
bool multiplies_integers(TensorType type);

constexpr std::size_t kSpan = 256;
constexpr std::size_t spans_of(std::size_t n) { return (n + kSpan - 1) / kSpan; }

constexpr int kLowDigit = 6;  ///< bits

/// A span of one activation: x = 64·high + low, with high from -64 to 64 and low from -32 to 31.
struct alignas(64) IntegerSpan {
  /// Sixty-four numbers in an order in which a type's bytes lie.
  struct Digits {
    std::int8_t high[64], low[64];
  };
  Digits blocks[4];        ///< first halves of blocks 0 to 3 of 32, second halves; of 4 to 7
  Digits chunks[4];        ///< of the eight chunks of 32: 0 and 4, 1 and 5, 2 and 6, 3 and 7
  Digits pairs[4];         ///< 0 and 2, 1 and 3, 4 and 6, 5 and 7; only with AVX-512
  std::int32_t quads[64];  ///< 32 times the sum of each four of `chunks`; only with AVX-512
  std::int32_t sums[8];    ///< of 32 numbers
  /// Sums of 32 and of 16 numbers: sum = 4·high + low.
  std::int16_t high32[8], low32[8], high16[16], low16[16];
  float scale;
};

/// The same for weights of 16-bit floating point, which become words: with AVX-512 pairs of a
/// number and zero; with AVX2 128 pairs, of each sixteen numbers 0 and 8, 1 and 9 and so on.
struct alignas(64) WordSpan {
  std::int16_t words[kSpan][2];
  float scale;
};

/// Rounds n numbers; writes spans_of(n), zeros after the end. A span with an infinity or a NaN gets
/// a scale that is NaN; one whose numbers are all below 2⁻¹¹⁰ counts as zeros.
void round_to_integers(const float* x, std::size_t n, IntegerSpan* out);
void round_to_integers(const float* x, std::size_t n, WordSpan* out);

/// out[c · out_stride + r] = <row r, activation c> for `count` rows of n weights, the first at
/// `rows`, and `columns` activations of spans_of(n) spans each.
void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const IntegerSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride);
/// For types of 16-bit floating point; up to kMostWordColumns activations. Throws Error for more.
void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const WordSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride);

/// A span of one of several activations, for rows that lie side by side. Only with AVX-512.
struct LaneSpan {
  struct {
    std::int8_t high[32], low[32];  ///< x = 64·high + low
  } blocks[8];
  std::int32_t sums32[8], sums16[16];  ///< of 32 numbers and of 16
  float scale;
};

/// Rounds n numbers as round_to_integers() does; writes spans_of(n) spans, `stride` apart.
void round_to_lanes(const float* x, std::size_t n, LaneSpan* out, std::size_t stride);

/// Activations up to which integer_dots() is fastest on this processor, and up to which, if that is
/// more, weights are multiplied with rows side by side: with more, of K types with more than are
/// multiplied at once, panels are faster.
constexpr std::size_t kMostWordColumns = 4;
std::size_t most_row_columns(TensorType type);
std::size_t most_lane_columns(TensorType type);

/// The same dots, kLaneRows rows at a time, for three activations or more: span s of activation c
/// is x[s · columns + c].
constexpr std::size_t kLaneRows = 16;
void integer_lane_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,
                       std::size_t count, std::size_t n, const LaneSpan* x, std::size_t columns,
                       float* out, std::size_t out_stride);

/// A span of six activations, for products with a panel. `pairs`: of each four numbers 0 and 2, 1
/// and 3; then the sums of 32 numbers and of 16, high and low.
struct alignas(64) IntegerTile {
  static constexpr std::size_t kColumns = 6;
  static constexpr std::size_t kSums32 = kSpan / 2, kSums16 = kSums32 + 8, kPairs = kSums16 + 16;
  std::int16_t pairs[kPairs][kColumns][2];
  float scale[kColumns];
};

/// Rounds up to kColumns rows of x as round_to_integers() does; writes spans_of(x.cols) tiles,
/// `stride` apart.
void round_to_tiles(ConstMatrix x, IntegerTile* out, std::size_t stride);

/// A span of 32 rows, unpacked: in two halves of sixteen rows that lie side by side.
struct alignas(64) IntegerPanel {
  static constexpr std::size_t kRows = 32;
  /// Pairs of int16 for `pairs` of IntegerTile, then float32 scales of folds, then of offsets.
  static constexpr std::size_t kLines = kSpan / 2 + 24;
  std::int32_t lines[2][kLines][kRows / 2];

  /// The span that will be wanted next: asked for ahead.
  struct {
    const std::byte* first = nullptr;
    std::size_t row_bytes = 0, bytes = 0;
  } next;
};

/// Unpacks span `span` of rows of n weights, the first at `rows`; if `count` is less than kRows,
/// the last of them is repeated. Meanwhile it asks for half of the same rows' next span, or of the
/// first of the rows that are `ahead` rows behind.
void fill_panel(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                std::size_t n, std::size_t span, std::size_t ahead, IntegerPanel& out);

/// totals[c][r] += what the span adds to <row r, activation c>, for the first `columns`. Meanwhile,
/// if `ask`, it asks for the other half of those rows: memory is to be busy all the
/// time.
void multiply_panel(TensorType type, const IntegerPanel& panel, const IntegerTile& x,
                    std::size_t columns, bool ask, float (*totals)[IntegerPanel::kRows]);

}  // namespace ballast
