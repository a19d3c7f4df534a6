#include "gemm/int_gemm.h"

#include "base/fail.h"
#include "gemm/kernels.h"
#include "simd/cpu.h"

namespace ballast {

bool multiplies_integers(TensorType type) {
  const bool small = is_quantized(type) || type == TensorType::f16 || type == TensorType::bf16;
  return small && (has_avx512_vnni() || has_avx2());
}

std::size_t most_row_columns(TensorType type) {
  if (!is_quantized(type)) return kMostWordColumns;
  return has_avx512_vnni() ? gemm::avx512::kRowColumns : gemm::avx2::kRowColumns;
}

std::size_t most_lane_columns(TensorType type) {
  if (!is_quantized(type) || !has_avx512_vnni()) return 0;
  return block_size(type) == 32 ? 32 : 8;
}

#if defined(__x86_64__)

void round_to_integers(const float* x, std::size_t n, IntegerSpan* out) {
  if (has_avx512_vnni()) return gemm::avx512::round_to_integers(x, n, out);
  gemm::avx2::round_to_integers(x, n, out);
}

void round_to_integers(const float* x, std::size_t n, WordSpan* out) {
  if (has_avx512_vnni()) return gemm::avx512::round_to_integers(x, n, out);
  gemm::avx2::round_to_integers(x, n, out);
}

void round_to_lanes(const float* x, std::size_t n, LaneSpan* out, std::size_t stride) {
  gemm::avx512::round_to_lanes(x, n, out, stride);
}

void round_to_tiles(ConstMatrix x, IntegerTile* out, std::size_t stride) {
  if (has_avx512_vnni()) return gemm::avx512::round_to_tiles(x, out, stride);
  gemm::avx2::round_to_tiles(x, out, stride);
}

void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const IntegerSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride) {
  if (has_avx512_vnni()) {
    return gemm::avx512::integer_dots(type, rows, row_bytes, count, n, x, columns, out, out_stride);
  }
  gemm::avx2::integer_dots(type, rows, row_bytes, count, n, x, columns, out, out_stride);
}

void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const WordSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride) {
  if (has_avx512_vnni()) {
    return gemm::avx512::integer_dots(type, rows, row_bytes, count, n, x, columns, out, out_stride);
  }
  gemm::avx2::integer_dots(type, rows, row_bytes, count, n, x, columns, out, out_stride);
}

void integer_lane_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,
                       std::size_t count, std::size_t n, const LaneSpan* x, std::size_t columns,
                       float* out, std::size_t out_stride) {
  gemm::avx512::integer_lane_dots(type, rows, row_bytes, count, n, x, columns, out, out_stride);
}

void fill_panel(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                std::size_t n, std::size_t span, std::size_t ahead, IntegerPanel& out) {
  if (has_avx512_vnni())
    return gemm::avx512::fill_panel(type, rows, row_bytes, count, n, span, ahead, out);
  gemm::avx2::fill_panel(type, rows, row_bytes, count, n, span, ahead, out);
}

void multiply_panel(TensorType type, const IntegerPanel& panel, const IntegerTile& x,
                    std::size_t columns, bool ask, float (*totals)[IntegerPanel::kRows]) {
  if (has_avx512_vnni()) return gemm::avx512::multiply_panel(type, panel, x, columns, ask, totals);
  gemm::avx2::multiply_panel(type, panel, x, columns, ask, totals);
}

#else

// multiplies_integers() is false everywhere else.
void round_to_integers(const float*, std::size_t, IntegerSpan*) { fail("no integer products"); }
void round_to_integers(const float*, std::size_t, WordSpan*) { fail("no integer products"); }
void round_to_lanes(const float*, std::size_t, LaneSpan*, std::size_t) {
  fail("no integer products");
}
void round_to_tiles(ConstMatrix, IntegerTile*, std::size_t) { fail("no integer products"); }
void integer_dots(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
                  const IntegerSpan*, std::size_t, float*, std::size_t) {
  fail("no integer products");
}
void integer_dots(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
                  const WordSpan*, std::size_t, float*, std::size_t) {
  fail("no integer products");
}
void integer_lane_dots(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
                       const LaneSpan*, std::size_t, float*, std::size_t) {
  fail("no integer products");
}
void fill_panel(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t, std::size_t,
                std::size_t, IntegerPanel&) {
  fail("no integer products");
}
void multiply_panel(TensorType, const IntegerPanel&, const IntegerTile&, std::size_t, bool,
                    float (*)[IntegerPanel::kRows]) {
  fail("no integer products");
}

#endif

}  // namespace ballast
