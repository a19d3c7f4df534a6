#include "codec/kernels/fast_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "storage/rotated.h"
#include "storage/round.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels/fast_rows.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "simd/inline.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loops over elements are left to the compiler, which has their length as a constant for the usual
// dimensions; Highway does what it cannot: butterflies within a vector and codewords by table.
// Sums have eight parts, whatever the vector, so that every processor makes the same bytes.

constexpr std::size_t kMostDim = 256;
constexpr std::size_t kParts = 8;

using Tag = hn::CappedTag<float, kParts>;
constexpr std::size_t kWidth = hn::MaxLanes(Tag());

/// Sums of the parts, in one order.
HWY_INLINE float sum_of(const float (&parts)[kParts]) {
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
         ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

template <std::size_t kDim>
HWY_INLINE void load_row(ElementType type, const void* row, std::size_t dim, float* x) {
  const std::size_t n = kDim != 0 ? kDim : dim;
  if (type == ElementType::f32) {
    std::memcpy(x, row, n * sizeof(float));
    return;
  }
  const auto* words = static_cast<const std::uint16_t*>(row);
  if (type == ElementType::bf16) {
    for (std::size_t i = 0; i < n; ++i) x[i] = std::bit_cast<float>(std::uint32_t{words[i]} << 16);
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    // Infinity and NaN become so large that the row is refused.
    const float beyond = (words[i] & 0x7C00u) == 0x7C00u ? 0x1p100f : 1.0f;
    x[i] = f16_decode(words[i]) * beyond;
  }
}

/// To nearest even. Finite.
template <std::size_t kDim>
HWY_INLINE void store_row(ElementType type, const float* x, std::size_t dim, void* row) {
  const std::size_t n = kDim != 0 ? kDim : dim;
  if (type == ElementType::f32) {
    std::memcpy(row, x, n * sizeof(float));
    return;
  }
  auto* words = static_cast<std::uint16_t*>(row);
  if (type == ElementType::bf16) {
    for (std::size_t i = 0; i < n; ++i) words[i] = bf16_encode(x[i]);
  } else {
    for (std::size_t i = 0; i < n; ++i) words[i] = f16_encode(x[i]);
  }
}

/// One register's part of the Walsh-Hadamard transform, and what registers of kDim or 64 elements
/// exchange.
template <std::size_t kDim>
HWY_INLINE void walsh_in_registers(float* x) {
  const Tag d;
  constexpr std::size_t kVectors = kDim / kWidth;
  hn::Vec<Tag> v[kVectors];
  for (std::size_t i = 0; i < kVectors; ++i) v[i] = hn::LoadU(d, x + i * kWidth);
#if HWY_TARGET != HWY_SCALAR
  alignas(32) static constexpr std::uint32_t kOdd[3][8] = {
      {0, 1u << 31, 0, 1u << 31, 0, 1u << 31, 0, 1u << 31},
      {0, 0, 1u << 31, 1u << 31, 0, 0, 1u << 31, 1u << 31},
      {0, 0, 0, 0, 1u << 31, 1u << 31, 1u << 31, 1u << 31}};
  const hn::RebindToUnsigned<Tag> du;
  const auto odd1 = hn::BitCast(d, hn::Load(du, kOdd[0]));
  const auto odd2 = hn::BitCast(d, hn::Load(du, kOdd[1]));
  for (std::size_t i = 0; i < kVectors; ++i) {
    v[i] = hn::Add(hn::Shuffle2301(v[i]), hn::Xor(v[i], odd1));
    v[i] = hn::Add(hn::Shuffle1032(v[i]), hn::Xor(v[i], odd2));
  }
  if constexpr (kWidth == 8) {
    const auto odd4 = hn::BitCast(d, hn::Load(du, kOdd[2]));
    for (std::size_t i = 0; i < kVectors; ++i) {
      v[i] = hn::Add(hn::ConcatLowerUpper(d, v[i], v[i]), hn::Xor(v[i], odd4));
    }
  }
#endif
  for (std::size_t half = 1; half < kVectors; half *= 2) {
    for (std::size_t i = 0; i < kVectors; i += 2 * half) {
      for (std::size_t j = i; j < i + half; ++j) {
        const auto a = v[j], b = v[j + half];
        v[j] = hn::Add(a, b);
        v[j + half] = hn::Sub(a, b);
      }
    }
  }
  for (std::size_t i = 0; i < kVectors; ++i) hn::StoreU(v[i], d, x + i * kWidth);
}

/// Multiplies by the Walsh-Hadamard matrix, without a scale.
template <std::size_t kDim>
HWY_INLINE void walsh(float* x) {
  constexpr std::size_t kBlock = kDim < 64 ? kDim : 64;
  for (std::size_t i = 0; i < kDim; i += kBlock) walsh_in_registers<kBlock>(x + i);
  for (std::size_t half = kBlock; half < kDim; half *= 2) {
    for (std::size_t i = 0; i < kDim; i += 2 * half) {
      for (std::size_t j = i; j < i + half; ++j) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
}

/// x = √factor R x; returns the factor.
template <std::size_t kDim>
HWY_INLINE float rotate_row(const float* signs, std::size_t dim, float* x) {
  if constexpr (kDim != 0) {
    for (std::size_t i = 0; i < kDim; ++i) x[i] *= signs[i];
    walsh<kDim>(x);
    return static_cast<float>(kDim);
  } else {
    float y[kMostDim];
    hadamard_rotate({x, dim}, y);
    std::copy_n(y, dim, x);
    return 1.0f;
  }
}

/// x = Rᵀ x √factor; returns the factor.
template <std::size_t kDim>
HWY_INLINE float rotate_row_back(const float* signs, std::size_t dim, float* x) {
  if constexpr (kDim != 0) {
    walsh<kDim>(x);
    for (std::size_t i = 0; i < kDim; ++i) x[i] *= signs[i];
    return static_cast<float>(kDim);
  } else {
    float y[kMostDim];
    hadamard_rotate_back({x, dim}, y);
    std::copy_n(y, dim, x);
    return 1.0f;
  }
}

/// words[i] = book[level[i]]; up to 31 elements more are read and written.
template <std::size_t kLevels>
HWY_INLINE void look_up(const std::array<std::int8_t, kLevels>& book, const std::uint8_t* level,
                        std::size_t n, std::int8_t* words) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < n; ++i) words[i] = book[level[i]];
#else
  const hn::CappedTag<std::int8_t, 32> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  alignas(16) std::int8_t table[16] = {};
  std::copy(book.begin(), book.end(), table);
  const auto codewords = hn::LoadDup128(d, table);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto index = hn::BitCast(d, hn::LoadU(du, level + i));
    hn::StoreU(hn::TableLookupBytes(codewords, index), d, words + i);
  }
#endif
}

/// The index of the codeword nearest to each integer.
template <std::size_t kLevels>
HWY_INLINE void nearest(const std::array<std::int8_t, kLevels>& book, const std::int8_t* z,
                        std::size_t n, std::uint8_t* level) {
  std::int8_t least[kLevels - 1];  // integers above it are nearer to the next codeword
  for (std::size_t l = 0; l + 1 < kLevels; ++l) {
    const int sum = book[l] + book[l + 1];
    least[l] = static_cast<std::int8_t>((sum - (sum & 1)) / 2);
  }
  const hn::CappedTag<std::int8_t, 32> d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, z + i);
    auto at = hn::Zero(d);
    for (std::size_t l = 0; l + 1 < kLevels; ++l) {
      at = hn::Sub(at, hn::VecFromMask(d, hn::Gt(x, hn::Set(d, least[l]))));
    }
    hn::StoreU(at, d, reinterpret_cast<std::int8_t*>(level) + i);
  }
}

/// action(begin, count, shift) for each run of elements that share a shift.
template <typename Action>
HWY_INLINE void for_each_field(std::size_t bytes, unsigned bits, std::size_t n,
                               const Action& action) {
  unsigned shift = 0;
  for (std::size_t begin = 0; begin < n; begin += bytes, shift += bits) {
    action(begin, std::min(bytes, n - begin), shift);
  }
}

template <StorageType kType>
HWY_INLINE void put_codes(const std::uint8_t* level, std::size_t n, std::byte* out) {
  constexpr unsigned kBits = kType == StorageType::q4 ? 4 : 2, kMask = (1u << kBits) - 1;
  const std::size_t bytes = low_code_bytes(kType, n), half = (bytes + 1) / 2;
  std::uint8_t codes[kMostDim / 2 + kMostDim / 8] = {};
  for_each_field(bytes, kBits, n,
                 [&](std::size_t begin, std::size_t count, unsigned shift) BALLAST_INLINE_LAMBDA {
                   for (std::size_t j = 0; j < count; ++j) {
                     codes[j] |= static_cast<std::uint8_t>((level[begin + j] & kMask) << shift);
                   }
                   if constexpr (kType == StorageType::q3) {
                     for (std::size_t j = 0; j < std::min(half, count); ++j) {
                       codes[bytes + j] |=
                           static_cast<std::uint8_t>(level[begin + j] >> 2 << shift);
                     }
                     for (std::size_t j = half; j < count; ++j) {
                       codes[bytes + j - half] |=
                           static_cast<std::uint8_t>(level[begin + j] >> 2 << (shift + 1));
                     }
                   }
                 });
  std::memcpy(out, codes, row_bytes(kType, n));
}

template <StorageType kType>
HWY_INLINE void get_codes(const std::byte* in, std::size_t n, std::uint8_t* level) {
  constexpr unsigned kBits = kType == StorageType::q4 ? 4 : 2, kMask = (1u << kBits) - 1;
  const std::size_t bytes = low_code_bytes(kType, n), half = (bytes + 1) / 2;
  std::uint8_t codes[kMostDim / 2 + kMostDim / 8];
  std::memcpy(codes, in, row_bytes(kType, n));
  for_each_field(
      bytes, kBits, n,
      [&](std::size_t begin, std::size_t count, unsigned shift) BALLAST_INLINE_LAMBDA {
        for (std::size_t j = 0; j < count; ++j) {
          level[begin + j] = static_cast<std::uint8_t>(codes[j] >> shift & kMask);
        }
        if constexpr (kType == StorageType::q3) {
          for (std::size_t j = 0; j < std::min(half, count); ++j) {
            level[begin + j] |= static_cast<std::uint8_t>((codes[bytes + j] >> shift & 1) << 2);
          }
          for (std::size_t j = half; j < count; ++j) {
            level[begin + j] |=
                static_cast<std::uint8_t>((codes[bytes + j - half] >> (shift + 1) & 1) << 2);
          }
        }
      });
}

template <StorageType kType>
constexpr const auto& book_of() {
  if constexpr (kType == StorageType::q4) {
    return kCodewords4;
  } else if constexpr (kType == StorageType::q3) {
    return kCodewords3;
  } else {
    return kCodewords2;
  }
}

/// As in storage/rotated.cc: codeword units for an element of standard deviation 1.
template <StorageType kType>
constexpr float unit_of() {
  return kType == StorageType::q4   ? 127.0f / 2.7326f
         : kType == StorageType::q3 ? 127.0f / 2.1520f
                                    : 127.0f / 1.5104f;
}

/// x -= R_j mean, and += when kSign is 1. `partners`: the mean at the partners.
template <std::size_t kDim, int kSign>
HWY_INLINE void add_mean(const float* turn, const float* mean, const float* partners,
                         std::size_t dim, float* x) {
  const std::size_t n = kDim != 0 ? kDim : dim;
  if (turn == nullptr) {
    for (std::size_t i = 0; i < n; ++i) x[i] = kSign > 0 ? x[i] + mean[i] : x[i] - mean[i];
    return;
  }
  const float *c = turn, *s = turn + n;
  for (std::size_t i = 0; i < n; ++i) {
    const float at = mean[i] * c[i] + partners[i] * s[i];
    x[i] = kSign > 0 ? x[i] + at : x[i] - at;
  }
}

template <std::size_t kDim>
HWY_INLINE float square_of(const float* x, std::size_t dim) {
  const std::size_t n = kDim != 0 ? kDim : dim;
  float parts[kParts] = {};
  std::size_t i = 0;
  for (; i + kParts <= n; i += kParts) {
    for (std::size_t p = 0; p < kParts; ++p) parts[p] += x[i + p] * x[i + p];
  }
  for (; i < n; ++i) parts[i % kParts] += x[i] * x[i];
  return sum_of(parts);
}

constexpr float kMostSquare = 1e34f, kLeastSquare = 1e-30f;

/// Codes of a row x, which is overwritten, of this square; returns the scale.
template <std::size_t kDim, StorageType kType>
HWY_INLINE std::uint16_t encode_row(const float* signs, float square, bool averaged,
                                    std::size_t dim, float* x, std::byte* codes) {
  const std::size_t n = kDim != 0 ? kDim : dim;
  if (!(square >= kLeastSquare) || !(square <= kMostSquare)) {
    std::memset(codes, 0, row_bytes(kType, n));
    return 0;
  }
  const float factor = rotate_row<kDim>(signs, dim, x);
  const float to_unit = unit_of<kType>() * std::sqrt(static_cast<float>(n) / (factor * square));
  std::int16_t z[kMostDim];
  std::int8_t small[kMostDim + 32], words[kMostDim + 32];
  std::uint8_t level[kMostDim + 32];
  for (std::size_t i = 0; i < n; ++i) {
    // Adding 1.5 · 2^23 leaves the nearest integer in the low bits. |x to_unit| <= 127 √n.
    z[i] = static_cast<std::int16_t>(std::bit_cast<std::int32_t>(x[i] * to_unit + 12582912.0f));
  }
  for (std::size_t i = 0; i < n; ++i) {
    small[i] = static_cast<std::int8_t>(std::clamp<std::int16_t>(z[i], -127, 127));
  }
  nearest(book_of<kType>(), small, n, level);
  look_up(book_of<kType>(), level, n, words);
  put_codes<kType>(level, n, codes);
  std::int32_t product = 0, own = 0;
  for (std::size_t i = 0; i < n; ++i) product += std::int32_t{z[i]} * std::int32_t{words[i]};
  for (std::size_t i = 0; i < n; ++i) own += std::int32_t{words[i]} * std::int32_t{words[i]};
  const float root = std::sqrt(factor);
  const float scale =
      averaged ? square * to_unit * root / static_cast<float>(product)
               : static_cast<float>(product) / (static_cast<float>(own) * to_unit * root);
  return bf16_encode(scale);
}

template <std::size_t kDim>
HWY_INLINE void mean_of(const HeadRows<const void>& rows, const IndexTurns& turns, float* mean) {
  const std::size_t n = kDim != 0 ? kDim : rows.dim, bytes = element_bytes(rows.type);
  alignas(64) float x[kMostDim], cosine[kMostDim] = {}, sine[kMostDim] = {};
  const auto* at = static_cast<const std::byte*>(rows.data);
  for (std::size_t j = 0; j < rows.rows; ++j, at += rows.stride * bytes) {
    load_row<kDim>(rows.type, at, n, x);
    if (turns.table == nullptr) {
      for (std::size_t i = 0; i < n; ++i) cosine[i] += x[i];
      continue;
    }
    const float *c = turns.table + j * 2 * n, *s = c + n;
    for (std::size_t i = 0; i < n; ++i) {
      cosine[i] += x[i] * c[i];
      sine[i] += x[i] * s[i];
    }
  }
  const float count = static_cast<float>(std::max<std::size_t>(rows.rows, 1));
  for (std::size_t i = 0; i < n; ++i) {
    const float other = turns.table == nullptr ? 0.0f : sine[turns.partner[i]];
    mean[i] = (cosine[i] + other) / count;
  }
}

HWY_INLINE void partners_of(const IndexTurns& turns, const float* mean, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n && turns.table != nullptr; ++i) out[i] = mean[turns.partner[i]];
}

template <std::size_t kDim, StorageType kType>
void encode_all(const float* signs, const HeadRows<const void>& rows, const IndexTurns& turns,
                const float* mean, bool averaged, std::byte* codes, std::uint16_t* scales,
                float* energies) {
  const std::size_t n = kDim != 0 ? kDim : rows.dim, bytes = element_bytes(rows.type);
  alignas(64) float x[kMostDim], partners[kMostDim];
  partners_of(turns, mean, n, partners);
  const auto* at = static_cast<const std::byte*>(rows.data);
  for (std::size_t j = 0; j < rows.rows; ++j, at += rows.stride * bytes) {
    load_row<kDim>(rows.type, at, n, x);
    const float* turn = turns.table == nullptr ? nullptr : turns.table + j * 2 * n;
    add_mean<kDim, -1>(turn, mean, partners, n, x);
    const float square = square_of<kDim>(x, n);
    energies[j] += square <= kMostSquare ? square : INFINITY;
    scales[j] =
        encode_row<kDim, kType>(signs, square, averaged, n, x, codes + j * row_bytes(kType, n));
  }
}

template <std::size_t kDim, StorageType kType>
void decode_all(const float* signs, const std::byte* codes, const std::uint16_t* scales,
                const IndexTurns& turns, const float* mean, const HeadRows<void>& rows) {
  const std::size_t n = kDim != 0 ? kDim : rows.dim, bytes = element_bytes(rows.type);
  alignas(64) float x[kMostDim], partners[kMostDim];
  std::uint8_t level[kMostDim + 32];
  std::int8_t words[kMostDim + 32];
  partners_of(turns, mean, n, partners);
  auto* at = static_cast<std::byte*>(rows.data);
  for (std::size_t j = 0; j < rows.rows; ++j, at += rows.stride * bytes) {
    get_codes<kType>(codes + j * row_bytes(kType, n), n, level);
    look_up(book_of<kType>(), level, n, words);
    for (std::size_t i = 0; i < n; ++i) x[i] = words[i];
    const float factor = rotate_row_back<kDim>(signs, n, x);
    const float scale = bf16_decode(scales[j]) / std::sqrt(factor);
    for (std::size_t i = 0; i < n; ++i) x[i] *= scale;
    const float* turn = turns.table == nullptr ? nullptr : turns.table + j * 2 * n;
    add_mean<kDim, 1>(turn, mean, partners, n, x);
    store_row<kDim>(rows.type, x, n, at);
  }
}

/// action<kDim>(): the dimension where it is a usual one, else 0.
template <typename Action>
HWY_INLINE void for_dim(std::size_t dim, const Action& action) {
  switch (dim) {
    case 64:
      return action.template operator()<64>();
    case 128:
      return action.template operator()<128>();
    case 256:
      return action.template operator()<256>();
    default:
      return action.template operator()<0>();
  }
}

void MeanOfRows(const HeadRows<const void>& rows, const IndexTurns& turns, float* mean) {
  for_dim(rows.dim, [&]<std::size_t kDim>() { mean_of<kDim>(rows, turns, mean); });
}

void EncodeRows(const float* signs, const HeadRows<const void>& rows, const IndexTurns& turns,
                const float* mean, StorageType type, bool averaged, std::byte* codes,
                std::uint16_t* scales, float* energies) {
  for_dim(rows.dim, [&]<std::size_t kDim>() {
    const auto encode = type == StorageType::q4   ? encode_all<kDim, StorageType::q4>
                        : type == StorageType::q3 ? encode_all<kDim, StorageType::q3>
                                                  : encode_all<kDim, StorageType::q2>;
    encode(signs, rows, turns, mean, averaged, codes, scales, energies);
  });
}

void DecodeRows(const float* signs, StorageType type, const std::byte* codes,
                const std::uint16_t* scales, const IndexTurns& turns, const float* mean,
                const HeadRows<void>& rows) {
  for_dim(rows.dim, [&]<std::size_t kDim>() {
    const auto decode = type == StorageType::q4   ? decode_all<kDim, StorageType::q4>
                        : type == StorageType::q3 ? decode_all<kDim, StorageType::q3>
                                                  : decode_all<kDim, StorageType::q2>;
    decode(signs, codes, scales, turns, mean, rows);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {

HWY_EXPORT(MeanOfRows);
HWY_EXPORT(EncodeRows);
HWY_EXPORT(DecodeRows);

/// The signs e of R = H diag(e) / √block: column i of H begins with +1, so that is the sign of the
/// first element of R times unit vector i.
const float* signs() {
  static const auto made = [] {
    std::array<float, 256> out{};
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::array<float, 256> unit{}, rotated{};
      unit[i] = 1.0f;
      hadamard_rotate(unit, rotated.data());
      out[i] = rotated[0] < 0 ? -1.0f : 1.0f;
    }
    return out;
  }();
  return made.data();
}

}  // namespace

void mean_of_rows(const HeadRows<const void>& rows, const IndexTurns& turns, float* mean) {
  HWY_DYNAMIC_DISPATCH(MeanOfRows)(rows, turns, mean);
}

void encode_rows(const HeadRows<const void>& rows, const IndexTurns& turns, const float* mean,
                 StorageType type, bool averaged, std::byte* codes, std::uint16_t* scales,
                 float* energies) {
  HWY_DYNAMIC_DISPATCH(EncodeRows)
  (signs(), rows, turns, mean, type, averaged, codes, scales, energies);
}

void decode_rows(StorageType type, const std::byte* codes, const std::uint16_t* scales,
                 const IndexTurns& turns, const float* mean, const HeadRows<void>& rows) {
  HWY_DYNAMIC_DISPATCH(DecodeRows)(signs(), type, codes, scales, turns, mean, rows);
}

}  // namespace ballast::kernels
#endif
