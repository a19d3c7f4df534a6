// QK: packs queries and multiplies them with the keys of a block.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/qk.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/avx512.h"
#include "attention/kernels/codes-inl.h"
#include "attention/kernels/prefetch.h"
#include "attention/kernels/rotated_avx512.h"
#include "attention/kernels/tiles-inl.h"
#include "storage/rotated.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

// Keys that Q queries are multiplied with at a time.
template <std::size_t Q>
inline constexpr std::size_t kKeys = kManyRegisters || Q <= 2 ? 4 : 2;

template <class Read>
struct PackQuery {
  static void run(const float* row, std::size_t dim, float* out) {
    for (std::size_t i = 0; i < packed_size(dim); ++i) {
      const std::size_t from = Read::position(i);
      out[i] = from < dim ? row[from] : 0.0f;
    }
  }
};

// Keys that are integers and their groups' scales. A query's numbers become 16-bit integers, too,
// in the order of the row: 15 bits where the keys have 7 or 4, and products add up exactly, two in
// one instruction. Behind them is their unit, and of int4, whose keys are s n + o, the sum of each
// group's integers, for its o.
template <class Read>
concept Quantized = (Read::kScales > 0);

template <Quantized Read>
struct PackQuery<Read> {
  static void run(const float* row, std::size_t dim, float* out) {
    const std::size_t size = packed_size(dim);
    float largest = 0.0f, finite = 0.0f;
    for (std::size_t i = 0; i < dim; ++i) {
      largest = std::max(largest, std::abs(row[i]));
      finite += row[i] * 0.0f;
    }
    // NaN unless all is finite, so that the logits are NaN too.
    *unit(out, size) = largest / 32767.0f + finite;
    const double inverse = largest > 0.0f ? 32767.0 / static_cast<double>(largest) : 0.0;
    auto* codes = reinterpret_cast<std::int16_t*>(out);
    for (std::size_t i = 0; i < size; ++i) {
      const double code = i < dim && finite == 0.0f ? static_cast<double>(row[i]) * inverse : 0.0;
      codes[i] = static_cast<std::int16_t>(std::lrint(code));
    }
    if constexpr (Read::kScales == 1) return;
    for (std::size_t g = 0; g < size / kQuantGroup; ++g) {
      const std::int16_t* group = codes + g * kQuantGroup;
      sums(out, size)[g] = static_cast<float>(std::accumulate(group, group + kQuantGroup, 0));
    }
  }
  // Of a packed query of `size` numbers.
  template <class Float>
  static Float* unit(Float* packed, std::size_t size) {
    return packed + size / 2;
  }
  template <class Float>
  static Float* sums(Float* packed, std::size_t size) {
    return packed + size / 2 + 1;
  }
};

void Pack(StorageType type, const float* row, std::size_t dim, float* out) {
  for_type<PackQuery>(type, row, dim, out);
}

// Rows e … of a block; the last ones repeat its last row.
template <class Read, std::size_t K>
HWY_INLINE void rows_from(const RowReader<Read>& reader, std::size_t e, const std::byte* (&rows)[K],
                          const float* (&scales)[K]) {
  const std::size_t last = reader.rows() - 1;
  unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA {
    rows[k] = reader.row(std::min(e + k, last));
    scales[k] = reader.scales(std::min(e + k, last));
  });
}

// One vector of Q queries × K keys, the first or the second of a step. Each product has one
// accumulator, so its terms add up in the same order whatever Q is.
template <std::size_t Q, std::size_t K, class Pacer>
HWY_INLINE void multiply_vector(std::size_t half, const FloatVec (&keys)[K], const float* queries,
                                std::size_t stride, Pacer& pace, FloatVec (&sums)[Q][K]) {
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    const auto x = hn::LoadU(FloatTag(), queries + q * stride + half * kLanes);
    unroll<K>([&](auto k)
                  BALLAST_INLINE_LAMBDA { sums[q][k] = hn::MulAdd(x, keys[k], sums[q][k]); });
    pace.part(half * Q + q);
  });
}

template <std::size_t Q, std::size_t K, class Pacer>
HWY_INLINE void multiply_step(const FloatVec (&a)[K], const FloatVec (&b)[K], const float* queries,
                              std::size_t stride, Pacer& pace, FloatVec (&sums)[Q][K]) {
  pace.step();
  multiply_vector(0, a, queries, stride, pace, sums);
  multiply_vector(1, b, queries, stride, pace, sums);
}

// The lanes of each added up, to the logits of K keys.
template <std::size_t Q, std::size_t K>
HWY_INLINE void store_sums(const FloatVec (&sums)[Q][K], float* logits) {
  const FloatTag d;
  if constexpr (K == 4) {
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      store_four_sums(d, sums[q][0], sums[q][1], sums[q][2], sums[q][3], logits + q * kEntryBlock);
    });
  } else {
    static_assert(K == 2);
    // Two queries at a time; the last of three with itself.
    unroll<(Q + 1) / 2>([&](auto i) BALLAST_INLINE_LAMBDA {
      constexpr std::size_t q = 2 * i, other = std::min(q + 1, Q - 1);
      float pairs[4];
      store_four_sums(d, sums[q][0], sums[q][1], sums[other][0], sums[other][1], pairs);
      std::memcpy(logits + q * kEntryBlock, pairs, K * sizeof(float));
      std::memcpy(logits + other * kEntryBlock, pairs + K, K * sizeof(float));
    });
  }
}

// Rows of two whole steps, several queries: four keys stay in registers while the queries pass by,
// one after the other, so that the lanes of one's sums are added up while the products of the next
// are made. The same terms in the same order as in dot_tile().
template <class Read, std::size_t Q>
HWY_INLINE void dot_tile_of_two_steps(const RowReader<Read>& reader, const float* queries,
                                      std::size_t stride, const PrefetchRange* range,
                                      float* logits) {
  const FloatTag d;
  constexpr std::size_t K = 4, kVectors = 4;
  const std::size_t tiles = (reader.rows() + K - 1) / K;
  const PrefetchPacer<2 * K * Read::bytes(kStep), kVectors * Q> begun(reader.view(), range, tiles);
  auto pace = begun;  // a copy, which stays in registers
  for (std::size_t e = 0; e < reader.rows(); e += K) {
    const std::byte* row[K];
    const float* scales[K];
    rows_from(reader, e, row, scales);
    FloatVec keys[kVectors][K];
    unroll<2>([&](auto s) BALLAST_INLINE_LAMBDA {
      unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA {
        reader.whole(row[k], scales[k], s, keys[2 * s][k], keys[2 * s + 1][k]);
      });
    });
    pace.step();
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      FloatVec sums[K];
      unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA { sums[k] = hn::Zero(d); });
      unroll<kVectors>([&](auto v) BALLAST_INLINE_LAMBDA {
        const auto x = hn::LoadU(d, queries + q * stride + v * kLanes);
        unroll<K>([&](auto k)
                      BALLAST_INLINE_LAMBDA { sums[k] = hn::MulAdd(x, keys[v][k], sums[k]); });
        pace.part(q * kVectors + v);
      });
      store_four_sums(d, sums[0], sums[1], sums[2], sums[3], logits + e + q * kEntryBlock);
    });
  }
}

template <class Read, std::size_t Q>
HWY_INLINE void dot_tile(const RowReader<Read>& reader, const float* queries, std::size_t stride,
                         const PrefetchRange* range, float* logits) {
  if constexpr (kManyRegisters && Q > 1) {
    // float32 that comes from memory is not multiplied faster so, but waited for in bursts.
    const bool waits = range != nullptr && has_lead(reader.view());
    if (reader.whole_steps() == 2 && reader.steps() == 2 && !waits) {
      return dot_tile_of_two_steps<Read, Q>(reader, queries, stride, range, logits);
    }
  }
  const FloatTag d;
  constexpr std::size_t K = kKeys<Q>;
  const std::size_t tiles = (reader.rows() + K - 1) / K;
  const PrefetchPacer<K * Read::bytes(kStep), 2 * Q> begun(reader.view(), range,
                                                           tiles * reader.steps());
  auto pace = begun;  // a copy, which stays in registers
  for (std::size_t e = 0; e < reader.rows(); e += K) {
    const std::byte* row[K];
    const float* scales[K];
    rows_from(reader, e, row, scales);
    FloatVec sums[Q][K];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA { sums[q][k] = hn::Zero(d); });
    });
    FloatVec a[K], b[K];
    std::size_t s = 0;
    for (; s < reader.whole_steps(); ++s) {
      if constexpr (Q > kTile) {
        pace.step();
        unroll<2>([&](auto half) BALLAST_INLINE_LAMBDA {
          unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA {
            a[k] = hn::LoadU(d, reinterpret_cast<const float*>(row[k]) + s * kStep + half * kLanes);
          });
          multiply_vector(half, a, queries + s * kStep, stride, pace, sums);
        });
      } else {
        unroll<K>([&](auto k)
                      BALLAST_INLINE_LAMBDA { reader.whole(row[k], scales[k], s, a[k], b[k]); });
        multiply_step(a, b, queries + s * kStep, stride, pace, sums);
      }
    }
    if (s < reader.steps()) [[unlikely]] {
      unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA { reader.rest(row[k], scales[k], a[k], b[k]); });
      multiply_step(a, b, queries + s * kStep, stride, pace, sums);
    }
    store_sums(sums, logits + e);
  }
}

// One group of Q queries × K keys. Many queries one by one, so that no sum waits in memory.
template <Quantized Read, std::size_t Q, std::size_t K, class Pacer>
HWY_INLINE void multiply_group(const std::byte* const (&keys)[K], const float* const (&scales)[K],
                               std::size_t group, const float* queries, std::size_t stride,
                               Pacer& pace, FloatVec (&sums)[Q][K]) {
  const FloatTag d;
  constexpr std::size_t kSteps = kQuantGroup / kStep;
  constexpr bool kOneByOne = Q > 2;
  ShortVec key[kSteps][K];
  hn::Vec<IntTag> products[Q][K];
  const auto multiply = [&](auto q, auto s) BALLAST_INLINE_LAMBDA {
    const auto* codes = reinterpret_cast<const std::int16_t*>(queries + q * stride);
    const auto query = load_i16(codes + group * kQuantGroup + s * kStep);
    unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA {
      const auto before = s == 0 ? hn::Zero(IntTag()) : products[q][k];
      products[q][k] = add_products(before, query, key[s][k]);
    });
  };
  pace.step();
  unroll<kSteps>([&](auto s) BALLAST_INLINE_LAMBDA {
    unroll<K>([&](auto k)
                  BALLAST_INLINE_LAMBDA { key[s][k] = Read::template integers<s>(keys[k]); });
    if constexpr (!kOneByOne) unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA { multiply(q, s); });
  });
  FloatVec scale[K];
  unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA { scale[k] = hn::Set(d, scales[k][group]); });
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    if constexpr (kOneByOne) unroll<kSteps>([&](auto s) BALLAST_INLINE_LAMBDA { multiply(q, s); });
    unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA {
      sums[q][k] = hn::MulAdd(hn::ConvertTo(d, products[q][k]), scale[k], sums[q][k]);
    });
    pace.part(q);
  });
}

template <Quantized Read, std::size_t Q>
HWY_INLINE void dot_tile(const RowReader<Read>& reader, const float* queries, std::size_t stride,
                         const PrefetchRange* range, float* logits) {
  const FloatTag d;
  constexpr std::size_t K = kKeys<Q>;
  constexpr std::size_t kGroupBytes = Read::bytes(kQuantGroup);
  constexpr bool kOffsets = Read::kScales > 1;
  const std::size_t rows = reader.rows();
  // Groups of int4 are stored whole.
  const std::size_t groups = kOffsets ? reader.groups() : reader.dim() / kQuantGroup;
  const std::size_t rest = kOffsets ? 0 : reader.dim() % kQuantGroup;
  // Whole vectors, as scales are read in: zeros meet what is not an offset of the row.
  float group_sums[Q][std::max(kMaxDim / kQuantGroup, kLanes)] = {};
  for (std::size_t q = 0; kOffsets && q < Q; ++q) {
    std::copy_n(PackQuery<Read>::sums(queries + q * stride, stride), groups, group_sums[q]);
  }
  const std::size_t tiles = (rows + K - 1) / K;
  const PrefetchPacer<K * kGroupBytes, Q> begun(reader.view(), range, tiles * reader.groups());
  auto pace = begun;  // a copy, which stays in registers
  for (std::size_t e = 0; e < rows; e += K) {
    const std::byte* keys[K];
    const float* scales[K];
    rows_from(reader, e, keys, scales);
    FloatVec sums[Q][K];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA { sums[q][k] = hn::Zero(d); });
    });
    for (std::size_t g = 0; kOffsets && g < groups; g += kLanes) {
      unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA {
        const auto offsets = hn::LoadU(d, scales[k] + groups + g);
        unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
          sums[q][k] = hn::MulAdd(offsets, hn::LoadU(d, group_sums[q] + g), sums[q][k]);
        });
      });
    }
    for (std::size_t g = 0; g < groups; ++g) {
      multiply_group<Read, Q, K>(keys, scales, g, queries, stride, pace, sums);
      unroll<K>([&](auto k) BALLAST_INLINE_LAMBDA { keys[k] += kGroupBytes; });
    }
    if (rest > 0) [[unlikely]] {
      std::byte buffer[K][kGroupBytes] = {};
      const std::byte* copies[K];
      for (std::size_t k = 0; k < K; ++k) {
        std::memcpy(buffer[k], keys[k], rest);
        copies[k] = buffer[k];
      }
      multiply_group<Read, Q, K>(copies, scales, groups, queries, stride, pace, sums);
    }
    store_sums(sums, logits + e);
  }
  for (std::size_t q = 0; q < Q; ++q) {
    const auto unit = hn::Set(d, *PackQuery<Read>::unit(queries + q * stride, stride));
    for (std::size_t e = 0; e < kEntryBlock; e += kLanes) {
      float* at = logits + q * kEntryBlock + e;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), unit), d, at);
    }
  }
}

template <class Read>
struct QkBlock {
  static void run(const RowsView* keys, const float* queries, std::size_t count, float* logits,
                  const PrefetchRange* range) {
    const RowReader<Read> reader(*keys);
    const std::size_t stride = packed_size(keys->dim);
    const bool many = count >= kManyFrom;
    std::size_t q = 0;
    if constexpr (std::is_same_v<Read, ReadF32>) {
      for (; many && q + kManyTile <= count; q += kManyTile) {
        dot_tile<Read, kManyTile>(reader, queries + q * stride, stride, range,
                                  logits + q * kEntryBlock);
        range = nullptr;
      }
    }
    for (; q + kTile <= count; q += kTile) {
      dot_tile<Read, kTile>(reader, queries + q * stride, stride, range, logits + q * kEntryBlock);
      range = nullptr;
    }
    queries += q * stride;
    logits += q * kEntryBlock;
    switch (count - q) {
      case 3:
        dot_tile<Read, 3>(reader, queries, stride, range, logits);
        break;
      case 2:
        dot_tile<Read, 2>(reader, queries, stride, range, logits);
        break;
      case 1:
        dot_tile<Read, 1>(reader, queries, stride, range, logits);
        break;
      default:
        break;
    }
  }
};

void Dot(const RowsView& keys, const float* queries, std::size_t count, float* logits,
         const PrefetchRange* range) {
  if (is_rotated(keys.type)) {
    codes::for_rotated(keys.type, [&]<StorageType type>() {
      codes::qk<type>(keys, queries, count, logits, range);
    });
    return;
  }
  for_type<QkBlock>(keys.type, &keys, queries, count, logits, range);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {
HWY_EXPORT(Pack);
HWY_EXPORT(Dot);
}  // namespace

bool keys_as_stored(StorageType type) {
  return type == StorageType::int8 || is_low_bit(type) || avx512::multiplies(type);
}

void pack_query(StorageType type, std::span<const float> row, float* out) {
  if (is_rotated(type)) return pack_rotated(type, row, out);
  if (avx512::multiplies(type)) return avx512::pack_query(type, row, out);
  HWY_DYNAMIC_DISPATCH(Pack)(type, row.data(), row.size(), out);
}

void qk_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
              const PrefetchRange* range) {
  if (is_rotated(keys.type) && avx512::multiplies_rotated()) {
    return avx512::qk_rotated(keys, queries, count, logits, range);
  }
  if (avx512::multiplies(keys.type)) {
    return avx512::qk_block(keys, queries, count, logits, range);
  }
  HWY_DYNAMIC_DISPATCH(Dot)(keys, queries, count, logits, range);
}

}  // namespace ballast::kernels
#endif
