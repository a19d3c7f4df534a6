// Shared by the AV kernels of all storage types (avx512.h). Included within their target's
// attributes.
#pragma once

#include "attention/kernels/avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

// The values of a block in steps of kEntries rows; a column has 16 elements. Zeros pad the last
// step.
template <std::size_t kEntries>
class Steps {
 public:
  explicit Steps(const RowsView& values)
      : values_(copied(values)),
        count_(up(values.rows, kEntries) / kEntries),
        whole_(values.rows / kEntries),
        last_(values, whole_ * kEntries) {}

  const RowsView& view() const { return values_; }
  std::size_t count() const { return count_; }
  std::size_t whole() const { return whole_; }
  std::size_t dim() const { return values_.dim; }
  RowSet all_rows() const { return {values_.data, values_.stride}; }
  RowSet last_rows() const { return last_.rows(); }
  RowSet rows(std::size_t step) const {
    if (step >= whole_) return last_rows();
    return {values_.data + step * kEntries * values_.stride, values_.stride};
  }

 private:
  RowsView values_;
  std::size_t count_, whole_;
  FilledUp last_;
};

// Accumulators of the queries, `stride` floats apart.
struct Sums {
  const float* factors;
  float* sums;
  std::size_t stride;

  Sums from(std::size_t q) const { return {factors + q, sums + q * stride, stride}; }
  BALLAST_INLINE float* of(std::size_t q) const { return sums + q * stride; }
  // Rescales the 16 sums of a column by the query's factor and adds `more`.
  BALLAST_INLINE void add(std::size_t q, std::size_t column, __m512 more) const {
    float* at = of(q) + column * kWide;
    _mm512_storeu_ps(at, _mm512_fmadd_ps(_mm512_loadu_ps(at), _mm512_set1_ps(factors[q]), more));
  }
};

}  // namespace

// av_block() for int8 and int4.
void av_integers(const RowsView& values, const float* weights, std::size_t count,
                 const float* factors, float* sums, const PrefetchRange* range);

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
