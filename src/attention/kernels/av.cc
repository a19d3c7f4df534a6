// AV: adds up the values of a block with weights, decodes rows and unpacks sums.
#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/av.cc"
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

void Unpack(StorageType type, const float* packed, float* row, std::size_t dim) {
  for_type<UnpackRow>(type, packed, row, dim);
}
void DecodePacked(const RowsView& rows, float* out) { for_type<DecodeRows>(rows.type, &rows, out); }

// Some rows of a block, and the sums of those before them, if any: what is kept of one part of the
// rows until the next.
struct Part {
  std::size_t begin, end;
  bool last;
  float* kept;  // like the sums of a tile
};

// Columns of `S` steps of the weighted sum for Q queries. As with the dot products, each column of
// each query has one accumulator.
template <class Read, std::size_t Q, std::size_t S, bool kRest, class Pacer>
HWY_INLINE void accumulate_columns(const RowReader<Read>& reader, const Part& part,
                                   std::size_t step, const float* weights, const float* factors,
                                   float* sums, std::size_t stride, Pacer& shared) {
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
  Pacer pace = shared;  // a copy, which stays in registers
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
                                const PrefetchRange* range) {
  constexpr std::size_t S = Q == 1 ? 4 : kManyRegisters || Q == 2 ? 2 : 1;
  PrefetchPacer<Read::bytes(kStep), Q> pace(reader.view(), range, reader.rows() * reader.steps());
  const std::size_t together = range == nullptr ? kEntryBlock : rows_together(reader.view());
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
struct AvBlock {
  static void run(const RowsView* values, const float* weights, std::size_t count,
                  const float* factors, float* sums, const PrefetchRange* range) {
    const RowReader<Read> reader(*values);
    const std::size_t stride = packed_size(values->dim);
    const bool many = count >= kManyFrom;
    std::size_t q = 0;
    if constexpr (std::is_same_v<Read, ReadF32>) {
      for (; many && q + kManyTile <= count; q += kManyTile) {
        accumulate_tile<Read, kManyTile>(reader, weights + q * kEntryBlock, factors + q,
                                         sums + q * stride, stride, range);
        range = nullptr;
      }
    }
    for (; q + kTile <= count; q += kTile) {
      accumulate_tile<Read, kTile>(reader, weights + q * kEntryBlock, factors + q,
                                   sums + q * stride, stride, range);
      range = nullptr;
    }
    weights += q * kEntryBlock;
    factors += q;
    sums += q * stride;
    switch (count - q) {
      case 3:
        accumulate_tile<Read, 3>(reader, weights, factors, sums, stride, range);
        break;
      case 2:
        accumulate_tile<Read, 2>(reader, weights, factors, sums, stride, range);
        break;
      case 1:
        accumulate_tile<Read, 1>(reader, weights, factors, sums, stride, range);
        break;
      default:
        break;
    }
  }
};

void Accumulate(const RowsView& values, const float* weights, std::size_t count,
                const float* factors, float* sums, const PrefetchRange* range) {
  if (is_rotated(values.type)) {
    codes::for_rotated(values.type, [&]<StorageType type>() {
      codes::av<type>(values, weights, count, factors, sums, range);
    });
    return;
  }
  for_type<AvBlock>(values.type, &values, weights, count, factors, sums, range);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kernels {
namespace {
HWY_EXPORT(Unpack);
HWY_EXPORT(DecodePacked);
HWY_EXPORT(Accumulate);
}  // namespace

bool values_as_stored(StorageType type) { return is_rotated(type) || avx512::multiplies(type); }

void unpack(StorageType type, const float* packed, std::span<float> row) {
  if (is_rotated(type)) return hadamard_rotate_back({packed, row.size()}, row.data());
  if (avx512::multiplies(type)) {
    std::copy_n(packed, row.size(), row.begin());
    return;
  }
  HWY_DYNAMIC_DISPATCH(Unpack)(type, packed, row.data(), row.size());
}

void decode_packed(const RowsView& rows, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodePacked)(rows, out);
}

void av_block(const RowsView& values, const float* weights, std::size_t count, const float* factors,
              float* sums, const PrefetchRange* range) {
  if (is_rotated(values.type) && avx512::multiplies_rotated()) {
    return avx512::av_rotated(values, weights, count, factors, sums, range);
  }
  if (avx512::multiplies(values.type)) {
    return avx512::av_block(values, weights, count, factors, sums, range);
  }
  HWY_DYNAMIC_DISPATCH(Accumulate)(values, weights, count, factors, sums, range);
}

}  // namespace ballast::kernels
#endif
