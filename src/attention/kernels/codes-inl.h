// Logits and weighted sums of q4, q3 and q2, as stored: codes are looked up in registers and
// multiplied as signed bytes. For processors without the instructions of rotated_avx512.h.
//
// A vector holds 16 bytes of one row or of two, a row in each block; vector r of four has rows r
// and r + 4. Products of bytes add up in pairs to 16 bits, then to 32.
#if defined(BALLAST_KERNELS_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KERNELS_CODES_INL_H_
#undef BALLAST_KERNELS_CODES_INL_H_
#else
#define BALLAST_KERNELS_CODES_INL_H_
#endif

#include "attention/kernels/prefetch.h"
#include "attention/kernels/rotated.h"
#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace codes {

#if HWY_TARGET == HWY_SCALAR
template <StorageType type>
void qk(const RowsView& rows, const float* queries, std::size_t count, float* logits,
        const PrefetchRange*) {
  const RowLayout<type> layout(rows.dim);
  const std::size_t stride = packed_size(rows.dim);
  float scales[kEntryBlock];
  decode_bf16(rows.scales, rows.rows, scales);
  for (std::size_t e = 0; e < rows.rows; ++e) {
    std::int8_t words[kMaxDim];
    unpack_codewords(type, rows.data + e * rows.stride, rows.dim, words);
    for (std::size_t q = 0; q < count; ++q) {
      const auto* codes = reinterpret_cast<const std::int8_t*>(queries + q * stride);
      std::int32_t sum = 0;
      for (std::size_t n = 0; n < rows.dim; ++n) {
        const std::size_t at = n / layout.bytes * layout.chunks * kCodeChunk + n % layout.bytes;
        sum += words[n] * codes[at];
      }
      const float unit = PackedQuery{queries + q * stride, stride}.unit();
      logits[q * kEntryBlock + e] = static_cast<float>(sum) * unit * scales[e];
    }
  }
}

template <StorageType type>
void av(const RowsView& rows, const float* weights, std::size_t count, const float* factors,
        float* sums, const PrefetchRange*) {
  const std::size_t stride = packed_size(rows.dim);
  float scales[kEntryBlock];
  decode_bf16(rows.scales, rows.rows, scales);
  for (std::size_t i = 0; i < count * stride; ++i) sums[i] *= factors[i / stride];
  for (std::size_t e = 0; e < rows.rows; ++e) {
    std::int8_t words[kMaxDim];
    unpack_codewords(type, rows.data + e * rows.stride, rows.dim, words);
    for (std::size_t q = 0; q < count; ++q) {
      const float weight = weights[q * kEntryBlock + e] * scales[e];
      for (std::size_t n = 0; n < rows.dim; ++n) sums[q * stride + n] += weight * words[n];
    }
  }
}
#else

using CodeTag = hn::CappedTag<std::uint8_t, 2 * kCodeChunk>;
using ByteTag = hn::RebindToSigned<CodeTag>;
using PairTag = hn::Repartition<std::int16_t, CodeTag>;
using SumTag = hn::Repartition<std::int32_t, CodeTag>;
using ResultTag = hn::Repartition<float, CodeTag>;
using FourTag = hn::FixedTag<float, 4>;
using Codes = hn::Vec<CodeTag>;
using Bytes = hn::Vec<ByteTag>;
using Sums = hn::Vec<SumTag>;
inline constexpr std::size_t kBlocks = hn::MaxLanes(CodeTag()) / kCodeChunk;
inline constexpr std::size_t kSums = 4 * kBlocks;   // of a vector
inline constexpr std::size_t kGroup = 4 * kBlocks;  // rows of four vectors

// Byte by byte, by n bits to the right or the left. Bits of neighbours come along.
template <int n>
HWY_INLINE Codes shift(Codes bytes) {
  const auto pairs = hn::BitCast(hn::RebindToUnsigned<PairTag>(), bytes);
  if constexpr (n >= 0) return hn::BitCast(CodeTag(), hn::ShiftRight<n>(pairs));
  return hn::BitCast(CodeTag(), hn::ShiftLeft < n >= 0 ? 0 : -n > (pairs));
}

// sum + a · b, in fours of bytes: a from 0 to 127, b from -127 to 127, so that pairs fit 16 bits.
HWY_INLINE Sums add_fours(Sums sum, Bytes a, Bytes b) {
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  const auto pairs = hn::Vec<PairTag>{_mm256_maddubs_epi16(a.raw, b.raw)};
#else
  const PairTag d;
  const auto low = [&](Bytes x) { return hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d, x))); };
  const auto high = [&](Bytes x) { return hn::ShiftRight<8>(hn::BitCast(d, x)); };
  const auto pairs = hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b)));
#endif
#if HWY_ARCH_X86
  auto rest = hn::Zero(SumTag());
  sum = hn::ReorderWidenMulAccumulate(SumTag(), pairs, hn::Set(PairTag(), 1), sum, rest);
  return hn::Add(sum, rest);
#else
  const auto both = hn::BitCast(SumTag(), pairs);  // neighbours, as above
  const auto first = hn::ShiftRight<16>(hn::ShiftLeft<16>(both));
  return hn::Add(sum, hn::Add(first, hn::ShiftRight<16>(both)));
#endif
}

// b with the sign of a, 0 where a is 0.
HWY_INLINE Bytes signed_as(Bytes b, Bytes a) {
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  return Bytes{_mm256_sign_epi8(b.raw, a.raw)};
#else
  const auto zero = hn::Zero(ByteTag());
  return hn::IfThenElse(hn::Lt(a, zero), hn::Sub(zero, b), b);
#endif
}

// What is loaded of the rows of a vector: codes, and of q3 the third bits of field f in bit 2 f.
template <StorageType type>
struct Loaded {
  Codes low, high;
};

// The codewords of a field.
template <StorageType type>
class Book {
 public:
  Book() {
    HWY_ALIGN std::int8_t words[2][kCodeChunk];
    const auto book = codewords(type);
    for (std::size_t i = 0; i < kCodeChunk; ++i) {
      words[0][i] = book[i % book.size()];
      words[1][i] = book[i / 4 % book.size()];
    }
    for (std::size_t t = 0; t < 2; ++t) tables_[t] = hn::LoadDup128(ByteTag(), words[t]);
  }
  // q2 has two fields in four bits, each with a table; q3 has fields 0 and 2, and 1 and 3 in bytes
  // of their own, with the third bit above the others.
  template <std::size_t f>
  HWY_INLINE Bytes words(const Loaded<type>& loaded) const {
    constexpr int kShift = type == StorageType::q4 ? 4 * f : f / 2 * 4;
    auto bytes = loaded.low;
    if constexpr (type == StorageType::q3) {
      const auto two = hn::Set(CodeTag(), 0x33), third = hn::Set(CodeTag(), 0x44);
      bytes = f % 2 == 0 ? hn::Or(hn::And(bytes, two), hn::And(shift<-2>(loaded.high), third))
                         : hn::Or(hn::And(shift<2>(bytes), two), hn::And(loaded.high, third));
    }
    if constexpr (kShift > 0) bytes = shift<kShift>(bytes);
    const auto index = hn::And(bytes, hn::Set(CodeTag(), 15));
    return hn::TableLookupBytes(tables_[type == StorageType::q2 ? f % 2 : 0],
                                hn::BitCast(ByteTag(), index));
  }

 private:
  Bytes tables_[2];
};

// The rows of a block, kGroup at a time.
template <StorageType type>
class Groups {
 public:
  explicit Groups(const RowsView& rows)
      : rows_(rows), layout_(rows.dim), count_((rows.rows + kGroup - 1) / kGroup) {
    // Where 16 bytes of a row's last chunk end behind the block, its rows are copied.
    const std::size_t end = (rows.rows - 1) * rows.stride + row_bytes(type, rows.dim);
    in_place_ = rows.rows / kGroup;
    while (in_place_ > 0 && (in_place_ * kGroup - 1) * rows.stride + layout_.extent() > end) {
      --in_place_;
    }
    decode_bf16(rows.scales, rows.rows, scales_);
    std::fill(scales_ + rows.rows, scales_ + kEntryBlock, 0.0f);
    for (std::size_t i = 0; i < kMaxDim / 2; ++i) upper_[i] = i >= layout_.half ? 255 : 0;
  }
  const RowLayout<type>& layout() const { return layout_; }
  std::size_t rows() const { return rows_.rows; }
  // kEntryBlock of them, 0 behind the last row.
  const float* scales() const { return scales_; }
  // Calls use(group, its first row, bytes from row to row).
  template <typename Use>
  HWY_INLINE void for_each(const Use& use) const {
    for (std::size_t g = 0; g < count_; ++g) {
      const std::byte* first = rows_.data + g * kGroup * rows_.stride;
      if (g < in_place_) [[likely]] {
        use(g, first, rows_.stride);
        continue;
      }
      std::byte copy[kGroup * kCopied] = {};
      for (std::size_t r = 0; r < std::min(kGroup, rows_.rows - g * kGroup); ++r) {
        std::memcpy(copy + r * kCopied, first + r * rows_.stride, row_bytes(type, rows_.dim));
      }
      use(g, copy, kCopied);
    }
  }
  // Chunk p of the rows of a vector.
  HWY_INLINE Loaded<type> load(const std::byte* row, std::size_t stride, std::size_t p) const {
    const std::byte* at = row + p * kCodeChunk;
    Loaded<type> loaded{two_rows(at, stride), hn::Zero(CodeTag())};
    if constexpr (type == StorageType::q3) {
      const auto upper = hn::LoadDup128(CodeTag(), upper_ + p * kCodeChunk);
      const auto above = two_rows(at + layout_.bytes - layout_.half, stride);
      const auto below = two_rows(at + layout_.bytes, stride);
      loaded.high = hn::Or(hn::And(upper, shift<1>(above)), hn::AndNot(upper, below));
    }
    return loaded;
  }

 private:
  static constexpr std::size_t kCopied = kMaxDim / 2 + 2 * kCodeChunk;

  template <class Tag = CodeTag>
  static HWY_INLINE hn::Vec<Tag> two_rows(const std::byte* row, std::size_t stride) {
    const hn::FixedTag<std::uint8_t, kCodeChunk> d;
    const auto first = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(row));
    if constexpr (hn::MaxLanes(Tag()) == kCodeChunk) {
      return first;
    } else {
      return hn::Combine(
          Tag(), hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(row + 4 * stride)), first);
    }
  }

  RowsView rows_;
  RowLayout<type> layout_;
  std::size_t count_, in_place_;
  alignas(kCodeChunk) std::uint8_t upper_[kMaxDim / 2];
  float scales_[kEntryBlock];
};

// Element r of each block: the sum of that block of vector r.
HWY_INLINE Sums sums_of_rows(const std::int32_t* vectors) {
  const SumTag d;
  const hn::Repartition<std::int64_t, SumTag> wide;
  Sums v[4];
  unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA { v[r] = hn::Load(d, vectors + r * kSums); });
  const auto a = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const auto b = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto x = hn::BitCast(wide, a), y = hn::BitCast(wide, b);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, x, y)),
                 hn::BitCast(d, hn::InterleaveUpper(wide, x, y)));
}

// Logits of Q queries.
template <StorageType type, std::size_t Q>
HWY_INLINE void dot(const Groups<type>& keys, const float* queries, std::size_t stride,
                    float* logits) {
  constexpr std::size_t kTogether = 2;  // vectors
  const Book<type> book;
  const std::size_t chunks = keys.layout().chunks;
  const auto* const packed = reinterpret_cast<const std::int8_t*>(queries);
  const std::size_t apart = stride * sizeof(float);
  keys.for_each([&](std::size_t g, const std::byte* rows,
                    std::size_t row_stride) BALLAST_INLINE_LAMBDA {
    HWY_ALIGN std::int32_t parts[Q][4 * kSums];
    for (std::size_t r = 0; r < 4; r += kTogether) {
      Sums sums[Q][kTogether];
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        unroll<kTogether>([&](auto i) BALLAST_INLINE_LAMBDA { sums[q][i] = hn::Zero(SumTag()); });
      });
      for (std::size_t p = 0; p < chunks; ++p) {
        Loaded<type> loaded[kTogether];
        unroll<kTogether>([&](auto i) BALLAST_INLINE_LAMBDA {
          loaded[i] = keys.load(rows + (r + i) * row_stride, row_stride, p);
        });
        const std::int8_t* at = packed + p * kCodeChunk;
        unroll<kFields<type> >([&](auto f) BALLAST_INLINE_LAMBDA {
          Bytes words[kTogether], sizes[kTogether];
          unroll<kTogether>([&](auto i) BALLAST_INLINE_LAMBDA {
            words[i] = book.template words<f>(loaded[i]);
            sizes[i] = hn::Abs(words[i]);
          });
          unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
            const auto query = hn::LoadDup128(ByteTag(), at + q * apart);
            unroll<kTogether>([&](auto i) BALLAST_INLINE_LAMBDA {
              sums[q][i] = add_fours(sums[q][i], sizes[i], signed_as(query, words[i]));
            });
          });
          at += chunks * kCodeChunk;
        });
      }
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        unroll<kTogether>([&](auto i) BALLAST_INLINE_LAMBDA {
          hn::Store(sums[q][i], SumTag(), parts[q] + (r + i) * kSums);
        });
      });
    }
    const ResultTag d;
    const auto scales = hn::LoadU(d, keys.scales() + g * kGroup);
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      const auto unit = hn::Set(d, PackedQuery{queries + q * stride, stride}.unit());
      const auto product = hn::Mul(hn::ConvertTo(d, sums_of_rows(parts[q])), unit);
      hn::StoreU(hn::Mul(product, scales), d, logits + q * kEntryBlock + g * kGroup);
    });
  });
}

template <StorageType type>
void qk(const RowsView& rows, const float* queries, std::size_t count, float* logits,
        const PrefetchRange* range) {
  const Prefetcher all_at_once(rows, range, 0);
  const Groups<type> keys(rows);
  const std::size_t stride = packed_size(rows.dim);
  const auto tile = [&]<std::size_t Q>(std::size_t q) {
    dot<type, Q>(keys, queries + q * stride, stride, logits + q * kEntryBlock);
  };
  std::size_t q = 0;
  for (; q + 4 <= count; q += 4) tile.template operator()<4>(q);
  if (count - q == 3) tile.template operator()<3>(q);
  if (count - q == 2) tile.template operator()<2>(q);
  if (count - q == 1) tile.template operator()<1>(q);
}

// The weights of a query times the scales of their rows, as bytes: a unit for each half of a block.
struct WeightBytes {
  static constexpr std::size_t kHalf = kEntryBlock / 2;

  HWY_INLINE void set(const float* weights, const float* scales) {
    const FloatTag d;
    for (std::size_t h = 0; h < 2; ++h) {
      HWY_ALIGN float products[kHalf];
      auto most = hn::Zero(d);
      for (std::size_t e = 0; e < kHalf; e += kLanes) {
        const auto product =
            hn::Mul(hn::LoadU(d, weights + h * kHalf + e), hn::LoadU(d, scales + h * kHalf + e));
        hn::Store(product, d, products + e);
        most = hn::Max(most, product);
      }
      const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
      units[h] = largest / 127.0f;
      // Below, the inverse would overflow: such values count as zeros.
      const auto inverse = hn::Set(d, largest > 1e-33f ? 127.0f / largest : 0.0f);
      const hn::Rebind<std::int8_t, FloatTag> d8;
      for (std::size_t e = 0; e < kHalf; e += kLanes) {
        const auto code = hn::NearestInt(hn::Mul(hn::Load(d, products + e), inverse));
        hn::StoreU(hn::DemoteTo(d8, code), d8, bytes + h * kHalf + e);
      }
    }
  }
  // Of group g: each block has those of its four rows, four times.
  HWY_INLINE Bytes of(std::size_t g) const {
    const SumTag d;
    std::int32_t fours[kBlocks];
    std::memcpy(fours, bytes + g * kGroup, sizeof(fours));
    if constexpr (kBlocks == 1) {
      return hn::BitCast(ByteTag(), hn::Set(d, fours[0]));
    } else {
      const hn::Half<SumTag> half;
      return hn::BitCast(
          ByteTag(), hn::Combine(d, hn::Set(half, fours[kBlocks - 1]), hn::Set(half, fours[0])));
    }
  }

  alignas(64) std::int8_t bytes[kEntryBlock];
  float units[2];
};

inline constexpr std::size_t kWeighted = 8;  // queries that share what is looked up

// Byte r of word i of block b, in vector c of four: byte 4 c + i of row r + 4 b.
HWY_INLINE void interleave(const Codes (&rows)[4], Codes (&out)[4]) {
  const CodeTag d;
  const hn::RebindToUnsigned<PairTag> pairs;
  const auto quarter = [&](auto low, auto high, Codes& first, Codes& second) BALLAST_INLINE_LAMBDA {
    const auto x = hn::BitCast(pairs, low), y = hn::BitCast(pairs, high);
    first = hn::BitCast(d, hn::InterleaveLower(pairs, x, y));
    second = hn::BitCast(d, hn::InterleaveUpper(pairs, x, y));
  };
  quarter(hn::InterleaveLower(d, rows[0], rows[1]), hn::InterleaveLower(d, rows[2], rows[3]),
          out[0], out[1]);
  quarter(hn::InterleaveUpper(d, rows[0], rows[1]), hn::InterleaveUpper(d, rows[2], rows[3]),
          out[2], out[3]);
}

// Of rows in either block.
template <class V>
HWY_INLINE hn::Vec<FourTag> of_both(V sums) {
  const hn::RebindToSigned<FourTag> d;
  if constexpr (kBlocks == 1) {
    return hn::ConvertTo(FourTag(), sums);
  } else {
    const auto sum = hn::Add(hn::LowerHalf(d, sums), hn::UpperHalf(d, sums));
    return hn::ConvertTo(FourTag(), sum);
  }
}

template <StorageType type>
HWY_INLINE void add(const Groups<type>& values, const WeightBytes* weights, std::size_t count,
                    float* sums, std::size_t stride) {
  constexpr std::size_t F = kFields<type>, kMostChunks = kMaxDim / F / kCodeChunk;
  constexpr std::size_t kVectors = 4 * F;  // of a chunk: [quarter][field]
  const Book<type> book;
  const RowLayout<type> layout = values.layout();
  const std::size_t chunks = layout.chunks;
  // [chunk][query][vector].
  HWY_ALIGN std::int32_t parts[kMostChunks * kWeighted * kVectors * kSums];
  const auto part = [&](std::size_t p, std::size_t q) BALLAST_INLINE_LAMBDA {
    return parts + (p * count + q) * kVectors * kSums;
  };
  std::fill_n(parts, chunks * count * kVectors * kSums, 0);
  const auto finish = [&](std::size_t half) {
    const FourTag d;
    for (std::size_t p = 0; p < chunks; ++p) {
      for (std::size_t q = 0; q < count; ++q) {
        const float unit = weights[q].units[half];
        for (std::size_t v = 0; v < kVectors; ++v) {
          std::int32_t* const at = part(p, q) + v * kSums;
          const auto sum = hn::Mul(of_both(hn::Load(SumTag(), at)), hn::Set(d, unit));
          hn::Store(hn::Zero(SumTag()), SumTag(), at);
          // Behind the field's end the next field begins.
          const std::size_t first = v / F * 4, end = layout.elements(p);
          float* const out = sums + q * stride + v % F * layout.bytes + p * kCodeChunk + first;
          if (first + 4 <= end) [[likely]] {
            hn::StoreU(hn::Add(hn::LoadU(d, out), sum), d, out);
          } else {
            HWY_ALIGN float four[4];
            hn::Store(sum, d, four);
            for (std::size_t i = 0; first + i < end; ++i) out[i] += four[i];
          }
        }
      }
    }
  };
  values.for_each(
      [&](std::size_t g, const std::byte* rows, std::size_t row_stride) BALLAST_INLINE_LAMBDA {
        if (g * kGroup == WeightBytes::kHalf) finish(0);
        for (std::size_t p = 0; p < chunks; ++p) {
          Codes low[4], high[4];
          unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
            const auto loaded = values.load(rows + r * row_stride, row_stride, p);
            low[r] = loaded.low;
            high[r] = loaded.high;
          });
          Codes of_low[4], of_high[4];
          interleave(low, of_low);
          interleave(high, of_high);
          HWY_ALIGN std::int8_t words[kVectors * kBlocks * kCodeChunk];
          unroll<4>([&](auto c) BALLAST_INLINE_LAMBDA {
            const Loaded<type> loaded{of_low[c], of_high[c]};
            unroll<F>([&](auto f) BALLAST_INLINE_LAMBDA {
              hn::Store(book.template words<f>(loaded), ByteTag(),
                        words + (c * F + f) * kBlocks * kCodeChunk);
            });
          });
          for (std::size_t q = 0; q < count; ++q) {
            const auto weight = weights[q].of(g);
            std::int32_t* const at = part(p, q);
            unroll<kVectors>([&](auto v) BALLAST_INLINE_LAMBDA {
              const auto word = hn::Load(ByteTag(), words + v * kBlocks * kCodeChunk);
              const auto sum = hn::Load(SumTag(), at + v * kSums);
              hn::Store(add_fours(sum, weight, word), SumTag(), at + v * kSums);
            });
          }
        }
      });
  finish(values.rows() > WeightBytes::kHalf ? 1 : 0);
}

template <StorageType type>
void av(const RowsView& rows, const float* weights, std::size_t count, const float* factors,
        float* sums, const PrefetchRange* range) {
  const Prefetcher all_at_once(rows, range, 0);
  const Groups<type> values(rows);
  const std::size_t stride = packed_size(rows.dim);
  for (std::size_t q = 0; q < count; q += kWeighted) {
    const std::size_t some = std::min(count - q, kWeighted);
    WeightBytes bytes[kWeighted];
    for (std::size_t i = 0; i < some; ++i) {
      bytes[i].set(weights + (q + i) * kEntryBlock, values.scales());
      for (std::size_t n = 0; n < stride; ++n) sums[(q + i) * stride + n] *= factors[q + i];
    }
    add<type>(values, bytes, some, sums + q * stride, stride);
  }
}

#endif

// Calls use.operator()<type>().
template <typename Use>
HWY_INLINE void for_rotated(StorageType type, const Use& use) {
  if (type == StorageType::q4) return use.template operator()<StorageType::q4>();
  if (type == StorageType::q3) return use.template operator()<StorageType::q3>();
  use.template operator()<StorageType::q2>();
}

}  // namespace codes
}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#endif
