// Rows of q4, q3 and q2 as bytes: one codeword an element, in rotated order, without the scale.
//
// A block of codes takes 16 bytes of a row at a time, as many as one look-up in a table of sixteen
// codewords takes. Kernels multiply the codewords as numbers of one byte; scales come to the logits
// of keys, and to the weights of values.
#if defined(BALLAST_KERNELS_CODEWORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KERNELS_CODEWORDS_INL_H_
#undef BALLAST_KERNELS_CODEWORDS_INL_H_
#else
#define BALLAST_KERNELS_CODEWORDS_INL_H_
#endif

#include "attention/kernels/rows-inl.h"
#include "storage/rotated.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

struct ReadCodewords {
  static constexpr std::size_t kScales = 0;
  static constexpr std::size_t bytes(std::size_t numbers) { return numbers; }
  static constexpr std::size_t position(std::size_t i) { return i; }
  static HWY_INLINE void step(const std::byte* at, const float*, std::size_t, std::size_t,
                              FloatVec& a, FloatVec& b) {
    a = load_i8(at);
    b = load_i8(at + kLanes);
  }
};

/// The codewords of a block, packed_size() a row with zeros at its end, and the rows' scales.
class Codewords {
 public:
  explicit Codewords(const RowsView& rows) : stride_(packed_size(rows.dim)), rows_(rows.rows) {
    decode_bf16(rows.scales, rows_, scales_);
    std::fill(scales_ + rows_, scales_ + kEntryBlock, 0.0f);
    if (rows.type == StorageType::q4) look_up<StorageType::q4>(rows);
    if (rows.type == StorageType::q3) look_up<StorageType::q3>(rows);
    if (rows.type == StorageType::q2) look_up<StorageType::q2>(rows);
    for (std::size_t r = 0; rows.dim < stride_ && r < rows_; ++r) {
      std::memset(words_ + r * stride_ + rows.dim, 0, stride_ - rows.dim);
    }
  }
  /// For RowReader<ReadCodewords>.
  RowsView view() const {
    RowsView view;
    view.type = StorageType::int8;
    view.rows = rows_;
    view.dim = view.stride = stride_;
    view.data = reinterpret_cast<const std::byte*>(words_);
    return view;
  }
  /// out[e] = in[e] times the scale of row e; of kEntryBlock numbers, 0 behind the last row.
  void scale(const float* in, float* out) const {
    const FloatTag d;
    for (std::size_t e = 0; e < kEntryBlock; e += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, in + e), hn::LoadU(d, scales_ + e)), d, out + e);
    }
  }

 private:
#if HWY_TARGET == HWY_SCALAR
  template <StorageType type>
  void look_up(const RowsView& rows) {
    for (std::size_t r = 0; r < rows_; ++r) {
      unpack_codewords(type, rows.data + r * rows.stride, rows.dim, words_ + r * stride_);
    }
  }
#else
  using Tag = hn::FixedTag<std::uint8_t, 16>;
  using Bytes = hn::Vec<Tag>;
  static constexpr std::size_t kBytes = 16;

  // By n bits, to the right or the left. Bits of neighbours come along.
  template <int n>
  static HWY_INLINE Bytes shift(Bytes bytes) {
    const hn::Repartition<std::uint16_t, Tag> words;
    const auto pairs = hn::BitCast(words, bytes);
    if constexpr (n >= 0) return hn::BitCast(Tag(), hn::ShiftRight<n>(pairs));
    return hn::BitCast(Tag(), hn::ShiftLeft < n >= 0 ? 0 : -n > (pairs));
  }

  // What is stored behind the end of a field is overwritten by the next: chunks come from the last
  // to the first, rows and fields from the first to the last.
  template <StorageType type>
  HWY_INLINE void look_up(const RowsView& rows) {
    constexpr std::size_t kFields = type == StorageType::q4 ? 2 : 4;
    constexpr int kBits = type == StorageType::q4 ? 4 : 2;
    const Tag d;
    const hn::RebindToSigned<Tag> di;
    HWY_ALIGN std::int8_t book[kBytes] = {};
    std::ranges::copy(codewords(type), book);
    const auto table = hn::Load(d, reinterpret_cast<const std::uint8_t*>(book));
    const auto mask = hn::Set(d, (1 << kBits) - 1), third = hn::Set(d, 4);
    const std::size_t bytes = low_code_bytes(type, rows.dim), half = (bytes + 1) / 2;
    const std::size_t stored = row_bytes(type, rows.dim);
    const std::byte* const end = rows.data + (rows_ - 1) * rows.stride + stored;
    auto* const words = reinterpret_cast<std::uint8_t*>(words_);
    for (std::size_t at = (bytes - 1) / kBytes * kBytes + kBytes; at > 0;) {
      at -= kBytes;
      // Of q3: which bytes have their high bits in the upper bit of two.
      const auto lower = static_cast<std::int8_t>(std::min(half - std::min(half, at), kBytes));
      const auto upper = hn::RebindMask(d, hn::Gt(hn::Iota(di, 1), hn::Set(di, lower)));
      const std::size_t extent = at + kBytes + (type == StorageType::q3 ? bytes : 0);
      std::uint8_t* out = words + at;
      for (std::size_t r = 0; r < rows_; ++r, out += stride_) {
        const std::byte* row = rows.data + r * rows.stride;
        std::byte copy[kMaxDim / 2 + 2 * kBytes];
        if (row + extent > end) [[unlikely]] {
          row = static_cast<const std::byte*>(std::memcpy(copy, row, stored));
        }
        const auto* codes = reinterpret_cast<const std::uint8_t*>(row) + at;
        const auto low = hn::LoadU(d, codes);
        [[maybe_unused]] Bytes high;
        if constexpr (type == StorageType::q3) {
          const auto* behind = codes + bytes;
          high = hn::IfThenElse(upper, shift<1>(hn::LoadU(d, behind - half)), hn::LoadU(d, behind));
        }
        unroll<kFields>([&](auto f) BALLAST_INLINE_LAMBDA {
          constexpr int kShift = f * kBits;
          auto code = hn::And(shift<kShift>(low), mask);
          if constexpr (type == StorageType::q3) {
            code = hn::Or(code, hn::And(shift<kShift - 2>(high), third));
          }
          hn::StoreU(hn::TableLookupBytes(table, code), d, out + f * bytes);
        });
      }
    }
  }
#endif

  std::size_t stride_, rows_;
  float scales_[kEntryBlock];
  alignas(64) std::int8_t words_[kEntryBlock * kMaxDim + 64];
};

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#endif
