// GCC 12 takes the undefined operands of its own intrinsics for mistakes (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "model/bf16_dots.h"

#include <hwy/base.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/cpu.h"
#include "base/fail.h"

namespace ballast {

bool multiplies_bf16(TensorType type) {
  return (is_quantised(type) || type == TensorType::bf16) && has_avx512_bf16();
}

}  // namespace ballast

#if defined(__x86_64__)

#include <immintrin.h>

// Everything from here on may only run where has_avx512_bf16() says so.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi2")
#include "model/bf16_readers-inl.h"

#ifdef __clang__
#define BALLAST_UNROLL _Pragma("clang loop unroll(full)")
#else
#define BALLAST_UNROLL _Pragma("GCC unroll 8")
#endif

namespace ballast {
namespace bf16 {

constexpr std::size_t kRows = Bf16Tile::kRows;

/// Sixteen sums, in one register or in two.
struct FullSums {
  __m512 all;
};
struct HalfSums {
  __m256 low, high;
};
FullSums sums_for(__m512i numbers);
HalfSums sums_for(const Halves& numbers);

BALLAST_INLINE void add_dots(FullSums& sums, __m512i w, const std::uint16_t* x) {
  sums.all = _mm512_dpbf16_ps(sums.all, (__m512bh)w, (__m512bh)_mm512_loadu_si512(x));
}
BALLAST_INLINE void add_dots(HalfSums& sums, const Halves& w, const std::uint16_t* x) {
  auto half = [&](std::size_t i) __attribute__((always_inline)) {
    return (__m256bh)load_32(reinterpret_cast<Bytes>(x + i));
  };
  sums.low = _mm256_dpbf16_ps(sums.low, (__m256bh)w.low, half(0));
  sums.high = _mm256_dpbf16_ps(sums.high, (__m256bh)w.high, half(16));
}

BALLAST_INLINE __m256 unite_halves(const FullSums& sums) {
  return _mm256_add_ps(_mm512_castps512_ps256(sums.all), _mm512_extractf32x8_ps(sums.all, 1));
}
BALLAST_INLINE __m256 unite_halves(const HalfSums& sums) {
  return _mm256_add_ps(sums.low, sums.high);
}

/// Unites the sixteen sums of each of four rows: lanes 8 apart, then 4, 2 and 1.
template <class Sums>
BALLAST_INLINE __m128 unite(const Sums (&sums)[kRows]) {
  __m128 four[kRows];
  BALLAST_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    const __m256 eight = unite_halves(sums[r]);
    four[r] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  }
  _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
  return _mm_add_ps(_mm_add_ps(four[0], four[2]), _mm_add_ps(four[1], four[3]));
}

BALLAST_INLINE void store_numbers(__m512i w, std::uint16_t* out) { _mm512_storeu_si512(out, w); }
BALLAST_INLINE void store_numbers(const Halves& w, std::uint16_t* out) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), w.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), w.high);
}

/// Fewer than 32 BF16 numbers with zeros behind them.
BALLAST_INLINE __m512i read_rest(Bytes p, std::size_t n) {
  return _mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

/// Numbers of a row that are gone over at a time, and blocks and bytes of them.
constexpr std::size_t kSpan = 256;
template <class Read>
constexpr std::size_t kSpanBlocks = kSpan / Read::kNumbers;
template <class Read>
constexpr std::size_t kSpanBytes = kSpanBlocks<Read>* Read::kBytes;

/// How far ahead weights are asked for.
constexpr std::size_t kAhead = 8192;

/// Asks for a span, into the second-level cache: the first one cannot wait for as many lines as
/// memory needs to be busy.
template <class Read>
BALLAST_INLINE void prefetch_from(Bytes p) {
  BALLAST_UNROLL
  for (std::size_t at = 0; at < kSpanBytes<Read>; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + at), _MM_HINT_T1);
  }
}

/// Asks for weights in the order in which they will be read: four rows side by side, too short for
/// the processor to see where they lead, then the four behind them.
class Prefetch {
 public:
  explicit BALLAST_INLINE Prefetch(std::size_t row_bytes)
      : row_bytes_(row_bytes),
        beyond_(row_bytes - kAhead % row_bytes),
        ahead_(kAhead / row_bytes * kRows * row_bytes + kAhead % row_bytes) {}

  /// For rows that are read up to byte `at`: what is read kAhead bytes later.
  template <class Read, std::size_t R>
  BALLAST_INLINE void rows(Bytes p, std::size_t at) const {
    const std::size_t ahead = ahead_ + (at < beyond_ ? 0 : (kRows - 1) * row_bytes_);
    BALLAST_UNROLL
    for (std::size_t r = 0; r < R; ++r) prefetch_from<Read>(p + r * row_bytes_ + ahead);
  }

 private:
  std::size_t row_bytes_;
  std::size_t beyond_;  ///< where in a row the place ahead is in one of the next four rows
  std::size_t ahead_;
};

/// R rows of blocks, `stride` bytes apart, gone over in spans. While one span is worked on, between
/// its steps, the factors of the next are made: the processor sees some hundred instructions ahead.
template <class Read, std::size_t R>
class Spans {
 public:
  /// Begins with `blocks` blocks of the rows at `first`.
  BALLAST_INLINE Spans(Bytes first, std::size_t stride, std::size_t blocks) : stride_(stride) {
    for (std::size_t b = 0; b < blocks; ++b)
      make(first + b * Read::kBytes, factors_[0] + b * kMade);
  }

  /// Goes over the `blocks` blocks at p, a step of all rows at a time, and gives the numbers of
  /// each to `use`: row, how many numbers were before them, numbers. The next call will be for the
  /// `next_blocks` > 0 blocks at `next`.
  template <class Use>
  BALLAST_INLINE void go(Bytes p, std::size_t blocks, Bytes next, std::size_t next_blocks,
                         const Use& use) {
    const float* factors = factors_[turn_];
    turn_ = 1 - turn_;
    float* made = factors_[turn_];
    if constexpr (kAtOnce) {
      if (next_blocks == 8) [[likely]] {
        Read::factors_of_eight(next, made);
        for (std::size_t b = 0; b < blocks; ++b, p += Read::kBytes, factors += kMade) {
          read_block<false>(p, factors, next, made, b * Read::kNumbers, use);
        }
        return;
      }
    }
    for (std::size_t b = 0; b < blocks; ++b) {
      read_block<true>(p, factors, next, made, b * Read::kNumbers, use);
      p += Read::kBytes;
      factors += kMade;
      made += kMade;
      // A shorter span's last block is looked at again.
      next += b + 1 < next_blocks ? Read::kBytes : 0;
    }
    for (std::size_t b = blocks; b < next_blocks; ++b, next += Read::kBytes, made += kMade) {
      make(next, made);
    }
  }

 private:
  static constexpr std::size_t kMade = R * Read::kFactors;
  /// One row leaves the units of vectors time to make factors of eight blocks at once.
  static constexpr bool kAtOnce = R == 1 && requires(Bytes p, float* out) {
    Read::factors_of_eight(p, out);
  };

  BALLAST_INLINE void make(Bytes p, float* out) const {
    BALLAST_UNROLL
    for (std::size_t r = 0; r < R; ++r) Read::factors(p + r * stride_, out + r * Read::kFactors);
  }

  template <bool kMakes, class Use>
  BALLAST_INLINE void read_block(Bytes p, const float* factors, Bytes next, float* made,
                                 std::size_t before, const Use& use) const {
    constexpr int kSteps = Read::kNumbers / Read::kStep;
    BALLAST_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      typename Read::Parts parts[R];
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        Read::begin(p + r * stride_, factors + r * Read::kFactors, step, parts[r]);
      }
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) Read::middle(parts[r]);
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        typename Read::Numbers numbers[Read::kStep / 32];
        Read::end(parts[r], numbers);
        use(r, before + static_cast<std::size_t>(step * Read::kStep), numbers);
      }
      BALLAST_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        // Row r's after step r, where there are as many steps.
        if (kMakes && step == static_cast<int>(r) % kSteps) {
          Read::factors(next + r * stride_, made + r * Read::kFactors);
        }
      }
    }
  }

  std::size_t stride_;
  int turn_ = 0;
  alignas(64) float factors_[2][std::max<std::size_t>(1, kSpanBlocks<Read>* kMade)];
};

/// The dots of rows [i, end), R at a time; returns how far it came.
template <class Read, std::size_t R>
BALLAST_INLINE std::size_t dots_of(Bytes first, std::size_t stride, std::size_t i, std::size_t end,
                                   std::size_t n, const std::uint16_t* x, float* out) {
  if (end - i < R) return i;
  const Prefetch prefetch(std::max<std::size_t>(1, stride));
  const std::size_t blocks = n / Read::kNumbers;
  const std::size_t full = std::min(kSpanBlocks<Read>, blocks);
  Spans<Read, R> spans(first + i * stride, stride, full);
  for (; i + R <= end; i += R) {
    decltype(sums_for(typename Read::Numbers())) sums[kRows] = {};
    const Bytes row = first + i * stride;
    for (std::size_t block = 0; block < blocks; block += kSpanBlocks<Read>) {
      const Bytes p = row + block * Read::kBytes;
      prefetch.rows<Read, R>(p, block * Read::kBytes);
      const std::size_t left = blocks - block;
      const bool last = left <= kSpanBlocks<Read>;
      // After the last rows there is nothing; these are looked at again.
      const Bytes next = !last ? p + kSpanBytes<Read> : i + 2 * R <= end ? row + R * stride : row;
      const std::uint16_t* numbers_x = x + block * Read::kNumbers;
      auto add = [&](std::size_t r, std::size_t at, const typename Read::Numbers* numbers)
          __attribute__((always_inline)) {
        BALLAST_UNROLL
        for (std::size_t i = 0; i < Read::kStep; i += 32) {
          add_dots(sums[r], numbers[i / 32], numbers_x + at + i);
        }
      };
      spans.go(p, std::min(kSpanBlocks<Read>, left), next,
               last ? full : std::min(kSpanBlocks<Read>, left - kSpanBlocks<Read>), add);
    }
    if constexpr (std::is_same_v<Read, ReadBf16>) {
      const std::size_t done = blocks * Read::kNumbers;
      if (done < n) {
        BALLAST_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          add_dots(sums[r], read_rest(row + r * stride + done * 2, n - done), x + done);
        }
      }
    }
    _mm_mask_storeu_ps(out + i, static_cast<__mmask8>((1u << R) - 1), unite(sums));
  }
  return i;
}

template <class Read>
void dots(Bytes first, std::size_t row_bytes, std::size_t count, std::size_t n,
          const std::uint16_t* x, float* out) {
  const std::size_t done = dots_of<Read, kRows>(first, row_bytes, 0, count, n, x, out);
  dots_of<Read, 1>(first, row_bytes, done, count, n, x, out);
}

template <class Read>
void unpack(Bytes first, std::size_t n, std::uint16_t* out) {
  Bytes row = first;
  const std::size_t blocks = n / Read::kNumbers;
  auto span = [&](std::size_t block) {
    return std::min(kSpanBlocks<Read>, blocks - std::min(blocks, block));
  };
  Spans<Read, 1> spans(row, 0, span(0));
  for (std::size_t block = 0; block < blocks; block += kSpanBlocks<Read>) {
    prefetch_from<Read>(row + kAhead);
    auto store = [&](std::size_t, std::size_t at, const typename Read::Numbers* numbers)
        __attribute__((always_inline)) {
      BALLAST_UNROLL
      for (std::size_t i = 0; i < Read::kStep; i += 32) {
        store_numbers(numbers[i / 32], out + block * Read::kNumbers + at + i);
      }
    };
    const std::size_t next = span(block + kSpanBlocks<Read>);
    const Bytes following = row + kSpanBytes<Read>;
    spans.go(row, span(block), next != 0 ? following : row, std::max<std::size_t>(1, next), store);
    row = following;
  }
  const std::size_t done = blocks * Read::kNumbers;
  if (done < n) _mm512_storeu_si512(out + done, read_rest(first + done * 2, n - done));
}

void round_numbers(const float* x, std::size_t n, std::uint16_t* out) {
  auto part = [&](std::size_t i) __attribute__((always_inline)) {
    const std::size_t left = n - std::min(n, i);
    const auto mask = static_cast<__mmask16>((1u << std::min<std::size_t>(left, 16)) - 1);
    return _mm512_maskz_loadu_ps(mask, x + std::min(n, i));
  };
  for (std::size_t i = 0; i < n; i += 32) {
    _mm512_storeu_si512(out + i, round_pair(part(i), part(i + 16)));
  }
}

template <std::size_t M>
void tile(Bf16Tile& tile, std::size_t n, bool first, bool last) {
  FullSums sums[M][kRows];
  BALLAST_UNROLL
  for (std::size_t j = 0; j < M; ++j) {
    BALLAST_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      sums[j][r].all = first ? _mm512_setzero_ps()
                             : _mm512_load_ps(tile.lanes + (j * kRows + r) * Bf16Tile::kLanes);
    }
  }
  for (std::size_t i = 0; i < n; i += 32) {
    __m512i w[kRows];
    BALLAST_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) w[r] = _mm512_loadu_si512(tile.rows[r] + i);
    BALLAST_UNROLL
    for (std::size_t j = 0; j < M; ++j) {
      BALLAST_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) add_dots(sums[j][r], w[r], tile.xs[j] + i);
    }
  }
  BALLAST_UNROLL
  for (std::size_t j = 0; j < M; ++j) {
    if (last) {
      _mm_storeu_ps(tile.sums[j], unite(sums[j]));
      continue;
    }
    BALLAST_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      _mm512_store_ps(tile.lanes + (j * kRows + r) * Bf16Tile::kLanes, sums[j][r].all);
    }
  }
}

/// Calls `action` with the reader of the type.
template <typename Action>
void with_reader(TensorType type, Action&& action) {
  switch (type) {
    case TensorType::bf16:
      return action(ReadBf16());
    case TensorType::q4_0:
      return action(ReadFourBits<TypeQ4_0>());
    case TensorType::q4_1:
      return action(ReadFourBits<TypeQ4_1>());
    case TensorType::q5_0:
      return action(ReadFiveBits<TypeQ5_0>());
    case TensorType::q5_1:
      return action(ReadFiveBits<TypeQ5_1>());
    case TensorType::q8_0:
      return action(ReadQ8_0());
    case TensorType::q2_k:
      return action(ReadQ2_K());
    case TensorType::q3_k:
      return action(ReadQ3_K());
    case TensorType::q4_k:
      return action(ReadQ4_K());
    case TensorType::q5_k:
      return action(ReadQ5_K());
    case TensorType::q6_k:
      return action(ReadQ6_K());
    case TensorType::iq4_nl:
      return action(ReadFourBits<TypeIq4Nl>());
    default:
      fail("weights of type {} are not multiplied as bfloat16", to_string(type));
  }
}

Bytes bytes(const std::byte* p) { return reinterpret_cast<Bytes>(p); }

}  // namespace bf16

void round_to_bf16(const float* x, std::size_t n, std::uint16_t* out) {
  bf16::round_numbers(x, n, out);
}

void unpack_bf16(TensorType type, const std::byte* row, std::size_t n, std::uint16_t* out) {
  bf16::with_reader(type,
                    [&](auto read) { bf16::unpack<decltype(read)>(bf16::bytes(row), n, out); });
}

void bf16_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
               std::size_t n, const std::uint16_t* x, float* out) {
  bf16::with_reader(type, [&](auto read) {
    bf16::dots<decltype(read)>(bf16::bytes(rows), row_bytes, count, n, x, out);
  });
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
void unpack_bf16(TensorType, const std::byte*, std::size_t, std::uint16_t*) {
  fail("no bfloat16 products");
}
void bf16_dots(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
               const std::uint16_t*, float*) {
  fail("no bfloat16 products");
}
void bf16_tile(Bf16Tile&, std::size_t, std::size_t, bool, bool) { fail("no bfloat16 products"); }

}  // namespace ballast

#endif
