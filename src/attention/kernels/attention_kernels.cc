#include "attention/kernels/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/attention_kernels.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

#include "attention/kernels/avx512.h"
#include "attention/kernels/prefetch.h"
#include "attention/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

// Registers limit a tile: 32 with AVX-512, 16 before.
inline constexpr bool kManyRegisters = kLanes == 16;
// Queries that share each row read, …
inline constexpr std::size_t kTile = 4;
// … more of many, whose rows are float32: then sums take all registers but a few, and what they are
// multiplied with is loaded where it is used …
inline constexpr std::size_t kManyTile = 6, kManyFrom = 2 * kManyTile;
// … and rows that Q of them are multiplied with at a time.
template <std::size_t Q>
inline constexpr std::size_t kKeys = kManyRegisters || Q <= 2 ? 4 : 2;

template <template <class> class Work, class... Args>
HWY_INLINE void for_type(StorageType type, Args... args) {
  switch (type) {
    case StorageType::f32:
      return Work<ReadF32>::run(args...);
    case StorageType::bf16:
      return Work<ReadBf16>::run(args...);
    case StorageType::f16:
      return Work<ReadF16>::run(args...);
    case StorageType::int8:
      return Work<ReadInt8>::run(args...);
    case StorageType::int4:
      return Work<ReadInt4>::run(args...);
  }
}

// ---- packing

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

template <class Read>
struct UnpackRow {
  static void run(const float* packed, float* row, std::size_t dim) {
    for (std::size_t i = 0; i < packed_size(dim); ++i) {
      const std::size_t to = Read::position(i);
      if (to < dim) row[to] = packed[i];
    }
  }
};

template <class Read>
struct DecodeRows {
  static void run(const RowsView* rows, float* out) {
    const FloatTag d;
    const RowReader<Read> reader(*rows);
    const std::size_t size = packed_size(rows->dim);
    for (std::size_t r = 0; r < rows->rows; ++r, out += size) {
      FloatVec a, b;
      std::size_t s = 0;
      for (; s < reader.whole_steps(); ++s) {
        reader.whole(reader.row(r), reader.scales(r), s, a, b);
        hn::StoreU(a, d, out + s * kStep);
        hn::StoreU(b, d, out + s * kStep + kLanes);
      }
      if (s < reader.steps()) {
        reader.rest(reader.row(r), reader.scales(r), a, b);
        hn::StoreU(a, d, out + s * kStep);
        hn::StoreU(b, d, out + s * kStep + kLanes);
        ++s;
      }
      for (std::size_t i = s * kStep; i < size; ++i) out[i] = 0.0f;
    }
  }
};

void Pack(StorageType type, const float* row, std::size_t dim, float* out) {
  for_type<PackQuery>(type, row, dim, out);
}
void Unpack(StorageType type, const float* packed, float* row, std::size_t dim) {
  for_type<UnpackRow>(type, packed, row, dim);
}
void DecodePacked(const RowsView& rows, float* out) { for_type<DecodeRows>(rows.type, &rows, out); }

// What is asked for ahead while a kernel works, in steps of kBytes of the present rows and kParts
// parts of a step: a line for each line of these; where a step has less, with every few steps.
template <std::size_t kBytes, std::size_t kParts>
class Pace {
 public:
  // steps: of all work.
  Pace(const RowsView& present, const Ahead* next, std::size_t steps)
      : upcoming_(present, next, (steps + kEvery - 1) / kEvery * kLines) {}
  HWY_INLINE void step() {
    if (++steps_ % kEvery == 0) lines_ = upcoming_.lines(kLines);
  }
  HWY_INLINE void part(std::size_t p) const {
    for (std::size_t i = p * kLines / kParts; i < (p + 1) * kLines / kParts; ++i) {
      upcoming_.ask(lines_, i);
    }
  }

 private:
  static constexpr std::size_t kLines = std::max<std::size_t>(kBytes / kLine, 1);
  static constexpr std::size_t kEvery = std::max<std::size_t>(kLine / kBytes, 1);

  Upcoming upcoming_;
  std::size_t steps_ = kEvery - 1;
  std::uintptr_t lines_ = 0;
};

// ---- dot products

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
template <std::size_t Q, std::size_t K, class AnyPace>
HWY_INLINE void multiply_vector(std::size_t half, const FloatVec (&keys)[K], const float* queries,
                                std::size_t stride, AnyPace& pace, FloatVec (&sums)[Q][K]) {
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    const auto x = hn::LoadU(FloatTag(), queries + q * stride + half * kLanes);
    unroll<K>([&](auto k)
                  BALLAST_INLINE_LAMBDA { sums[q][k] = hn::MulAdd(x, keys[k], sums[q][k]); });
    pace.part(half * Q + q);
  });
}

template <std::size_t Q, std::size_t K, class AnyPace>
HWY_INLINE void multiply_step(const FloatVec (&a)[K], const FloatVec (&b)[K], const float* queries,
                              std::size_t stride, AnyPace& pace, FloatVec (&sums)[Q][K]) {
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
                                      std::size_t stride, const Ahead* next, float* logits) {
  const FloatTag d;
  constexpr std::size_t K = 4, kVectors = 4;
  const std::size_t tiles = (reader.rows() + K - 1) / K;
  const Pace<2 * K * Read::bytes(kStep), kVectors * Q> begun(reader.view(), next, tiles);
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
                         const Ahead* next, float* logits) {
  if constexpr (kManyRegisters && Q > 1) {
    // float32 that comes from memory is not multiplied faster so, but waited for in bursts.
    const bool waits = next != nullptr && has_lead(reader.view());
    if (reader.whole_steps() == 2 && reader.steps() == 2 && !waits) {
      return dot_tile_of_two_steps<Read, Q>(reader, queries, stride, next, logits);
    }
  }
  const FloatTag d;
  constexpr std::size_t K = kKeys<Q>;
  const std::size_t tiles = (reader.rows() + K - 1) / K;
  const Pace<K * Read::bytes(kStep), 2 * Q> begun(reader.view(), next, tiles * reader.steps());
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
template <Quantized Read, std::size_t Q, std::size_t K, class AnyPace>
HWY_INLINE void multiply_group(const std::byte* const (&keys)[K], const float* const (&scales)[K],
                               std::size_t group, const float* queries, std::size_t stride,
                               AnyPace& pace, FloatVec (&sums)[Q][K]) {
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
                         const Ahead* next, float* logits) {
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
  const Pace<K * kGroupBytes, Q> begun(reader.view(), next, tiles * reader.groups());
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
struct DotBlock {
  static void run(const RowsView* keys, const float* queries, std::size_t count, float* logits,
                  const Ahead* next) {
    const RowReader<Read> reader(*keys);
    const std::size_t stride = packed_size(keys->dim);
    const bool many = count >= kManyFrom;
    std::size_t q = 0;
    if constexpr (std::is_same_v<Read, ReadF32>) {
      for (; many && q + kManyTile <= count; q += kManyTile) {
        dot_tile<Read, kManyTile>(reader, queries + q * stride, stride, next,
                                  logits + q * kEntryBlock);
        next = nullptr;
      }
    }
    for (; q + kTile <= count; q += kTile) {
      dot_tile<Read, kTile>(reader, queries + q * stride, stride, next, logits + q * kEntryBlock);
      next = nullptr;
    }
    queries += q * stride;
    logits += q * kEntryBlock;
    switch (count - q) {
      case 3:
        dot_tile<Read, 3>(reader, queries, stride, next, logits);
        break;
      case 2:
        dot_tile<Read, 2>(reader, queries, stride, next, logits);
        break;
      case 1:
        dot_tile<Read, 1>(reader, queries, stride, next, logits);
        break;
      default:
        break;
    }
  }
};

void Dot(const RowsView& keys, const float* queries, std::size_t count, float* logits,
         const Ahead* upcoming) {
  for_type<DotBlock>(keys.type, &keys, queries, count, logits, upcoming);
}

// ---- weighted sums

// Some rows of a block, and the sums of those before them, if any: what is kept of one part of the
// rows until the next.
struct Part {
  std::size_t begin, end;
  bool last;
  float* kept;  // like the sums of a tile
};

// Columns of `S` steps of the weighted sum for Q queries. As with the dot products, each column of
// each query has one accumulator.
template <class Read, std::size_t Q, std::size_t S, bool kRest, class AnyPace>
HWY_INLINE void accumulate_columns(const RowReader<Read>& reader, const Part& part,
                                   std::size_t step, const float* weights, const float* factors,
                                   float* sums, std::size_t stride, AnyPace& shared) {
  const FloatTag d;
  FloatVec total[Q][2 * S];
  const auto all = [&](const auto& action) BALLAST_INLINE_LAMBDA {
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<2 * S>([&](auto i) BALLAST_INLINE_LAMBDA {
        action(q, i, q * stride + step * kStep + i * kLanes);
      });
    });
  };
  all([&](auto q, auto i, std::size_t at) BALLAST_INLINE_LAMBDA {
    total[q][i] = part.begin == 0 ? hn::Zero(d) : hn::LoadU(d, part.kept + at);
  });
  AnyPace pace = shared;  // a copy, which stays in registers
  for (std::size_t e = part.begin; e < part.end; ++e) {
    const std::byte* row = reader.row(e);
    const float* scales = reader.scales(e);
    FloatVec w[Q];
    if constexpr (Q <= kTile) {
      unroll<Q>([&](auto q)
                    BALLAST_INLINE_LAMBDA { w[q] = everywhere(weights + q * kEntryBlock + e); });
    }
    unroll<S>([&](auto s) BALLAST_INLINE_LAMBDA {
      pace.step();
      FloatVec a, b;
      if constexpr (kRest) {
        reader.rest(row, scales, a, b);
      } else {
        reader.whole(row, scales, step + s, a, b);
      }
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        if constexpr (Q > kTile) w[q] = everywhere(weights + q * kEntryBlock + e);
        total[q][2 * s] = hn::MulAdd(w[q], a, total[q][2 * s]);
        total[q][2 * s + 1] = hn::MulAdd(w[q], b, total[q][2 * s + 1]);
        pace.part(q);
      });
    });
  }
  shared = pace;
  all([&](auto q, auto i, std::size_t at) BALLAST_INLINE_LAMBDA {
    if (part.last) {
      const auto factor = hn::Set(d, factors[q]);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, sums + at), factor, total[q][i]), d, sums + at);
    } else {
      hn::StoreU(total[q][i], d, part.kept + at);
    }
  });
}

template <class Read, std::size_t Q>
HWY_INLINE void accumulate_tile(const RowReader<Read>& reader, const float* weights,
                                const float* factors, float* sums, std::size_t stride,
                                const Ahead* next) {
  constexpr std::size_t S = Q == 1 ? 4 : kManyRegisters || Q == 2 ? 2 : 1;
  Pace<Read::bytes(kStep), Q> pace(reader.view(), next, reader.rows() * reader.steps());
  const std::size_t together = next == nullptr ? kEntryBlock : rows_together(reader.view());
  float kept[Q * kMaxDim];
  for (std::size_t e = 0; e < reader.rows(); e += together) {
    const std::size_t end = std::min(e + together, reader.rows());
    const Part part{e, end, end == reader.rows(), kept};
    std::size_t s = 0;
    const auto whole = [&]<std::size_t N>(std::integral_constant<std::size_t, N>)
                           BALLAST_INLINE_LAMBDA {
                             for (; s + N <= reader.whole_steps(); s += N) {
                               accumulate_columns<Read, Q, N, false>(reader, part, s, weights,
                                                                     factors, sums, stride, pace);
                             }
                           };
    whole(std::integral_constant<std::size_t, S>());
    if constexpr (S > 2) whole(std::integral_constant<std::size_t, 2>());
    if constexpr (S > 1) whole(std::integral_constant<std::size_t, 1>());
    if (s < reader.steps()) {
      accumulate_columns<Read, Q, 1, true>(reader, part, s, weights, factors, sums, stride, pace);
    }
  }
}

template <class Read>
struct AccumulateBlock {
  static void run(const RowsView* values, const float* weights, std::size_t count,
                  const float* factors, float* sums, const Ahead* next) {
    const RowReader<Read> reader(*values);
    const std::size_t stride = packed_size(values->dim);
    const bool many = count >= kManyFrom;
    std::size_t q = 0;
    if constexpr (std::is_same_v<Read, ReadF32>) {
      for (; many && q + kManyTile <= count; q += kManyTile) {
        accumulate_tile<Read, kManyTile>(reader, weights + q * kEntryBlock, factors + q,
                                         sums + q * stride, stride, next);
        next = nullptr;
      }
    }
    for (; q + kTile <= count; q += kTile) {
      accumulate_tile<Read, kTile>(reader, weights + q * kEntryBlock, factors + q,
                                   sums + q * stride, stride, next);
      next = nullptr;
    }
    weights += q * kEntryBlock;
    factors += q;
    sums += q * stride;
    switch (count - q) {
      case 3:
        accumulate_tile<Read, 3>(reader, weights, factors, sums, stride, next);
        break;
      case 2:
        accumulate_tile<Read, 2>(reader, weights, factors, sums, stride, next);
        break;
      case 1:
        accumulate_tile<Read, 1>(reader, weights, factors, sums, stride, next);
        break;
      default:
        break;
    }
  }
};

void Accumulate(const RowsView& values, const float* weights, std::size_t count,
                const float* factors, float* sums, const Ahead* upcoming) {
  for_type<AccumulateBlock>(values.type, &values, weights, count, factors, sums, upcoming);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {
HWY_EXPORT(Pack);
HWY_EXPORT(Unpack);
HWY_EXPORT(DecodePacked);
HWY_EXPORT(Dot);
HWY_EXPORT(Accumulate);
}  // namespace

bool keys_as_stored(StorageType type) {
  return type == StorageType::int8 || type == StorageType::int4 || avx512::multiplies(type);
}
bool values_as_stored(StorageType type) { return avx512::multiplies(type); }

void pack_query(StorageType type, std::span<const float> row, float* out) {
  if (avx512::multiplies(type)) return avx512::pack_query(type, row, out);
  HWY_DYNAMIC_DISPATCH(Pack)(type, row.data(), row.size(), out);
}
void unpack(StorageType type, const float* packed, std::span<float> row) {
  if (avx512::multiplies(type)) {
    std::copy_n(packed, row.size(), row.begin());
    return;
  }
  HWY_DYNAMIC_DISPATCH(Unpack)(type, packed, row.data(), row.size());
}
void decode_packed(const RowsView& rows, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodePacked)(rows, out);
}
void dot_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
               const Ahead* upcoming) {
  if (avx512::multiplies(keys.type)) {
    return avx512::dot_block(keys, queries, count, logits, upcoming);
  }
  HWY_DYNAMIC_DISPATCH(Dot)(keys, queries, count, logits, upcoming);
}
void accumulate_block(const RowsView& values, const float* weights, std::size_t count,
                      const float* factors, float* sums, const Ahead* upcoming) {
  if (avx512::multiplies(values.type)) {
    return avx512::accumulate_block(values, weights, count, factors, sums, upcoming);
  }
  HWY_DYNAMIC_DISPATCH(Accumulate)(values, weights, count, factors, sums, upcoming);
}

}  // namespace ballast::kernels
#endif
