#include "gemm/int_gemm.h"

#include <limits>

#include "base/fail.h"
#include "base/os/process.h"
#include "gemm/kernels.h"
#include "simd/cpu.h"

#if defined(__aarch64__)
namespace ballast::gemm::neon_dot {
decltype(ballast::gemv) gemv;
}
#endif

namespace ballast {

bool has_int_gemm(TensorType type) {
#if defined(__aarch64__)
  return is_quantized(type);
#else
  const bool small = is_quantized(type) || type == TensorType::f16 || type == TensorType::bf16;
  return small && (has_avx512_vnni() || has_avx2());
#endif
}

std::size_t gemv_max_m(TensorType type) {
  if (!is_quantized(type)) return kGemvF16MaxM;
#if defined(__aarch64__)
  return std::numeric_limits<std::size_t>::max();
#else
  return has_avx512_vnni() ? gemm::avx512::kGemvTileM : gemm::avx2::kGemvTileM;
#endif
}

std::size_t small_batch_max_m(TensorType type) {
  if (!is_quantized(type) || !has_avx512_vnni()) return 0;
  return block_size(type) == 32 ? 32 : 8;
}

#if defined(__x86_64__)

void quantize(const float* x, std::size_t k, QuantizedActivations* out) {
  if (has_avx512_vnni()) return gemm::avx512::quantize(x, k, out);
  gemm::avx2::quantize(x, k, out);
}

void quantize(const float* x, std::size_t k, QuantizedActivationsI16* out) {
  if (has_avx512_vnni()) return gemm::avx512::quantize(x, k, out);
  gemm::avx2::quantize(x, k, out);
}

void quantize(const float* x, std::size_t k, SmallBatchActivations* out, std::size_t stride) {
  gemm::avx512::quantize(x, k, out, stride);
}

void pack_activations(ConstMatrix x, ActivationPanel* out, std::size_t stride) {
  if (has_avx512_vnni()) return gemm::avx512::pack_activations(x, out, stride);
  gemm::avx2::pack_activations(x, out, stride);
}

void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
          const QuantizedActivations* x, std::size_t m, float* out, std::size_t out_stride) {
  if (has_avx512_vnni()) {
    return gemm::avx512::gemv(type, w, row_bytes, n, k, x, m, out, out_stride);
  }
  gemm::avx2::gemv(type, w, row_bytes, n, k, x, m, out, out_stride);
}

void gemv_f16(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
              std::size_t k, const QuantizedActivationsI16* x, std::size_t m, float* out,
              std::size_t out_stride) {
  if (has_avx512_vnni()) {
    return gemm::avx512::gemv_f16(type, w, row_bytes, n, k, x, m, out, out_stride);
  }
  gemm::avx2::gemv_f16(type, w, row_bytes, n, k, x, m, out, out_stride);
}

void small_batch_gemm(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                      std::size_t k, const SmallBatchActivations* x, std::size_t m, float* out,
                      std::size_t out_stride) {
  gemm::avx512::small_batch_gemm(type, w, row_bytes, n, k, x, m, out, out_stride);
}

void pack_weights(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                  std::size_t k, std::size_t superblock, std::size_t ahead, WeightPanel& out) {
  if (has_avx512_vnni()) {
    return gemm::avx512::pack_weights(type, w, row_bytes, n, k, superblock, ahead, out);
  }
  gemm::avx2::pack_weights(type, w, row_bytes, n, k, superblock, ahead, out);
}

void microkernel(TensorType type, const WeightPanel& w, const ActivationPanel& x, std::size_t m,
                 bool prefetch_next, float (*totals)[WeightPanel::kN]) {
  if (has_avx512_vnni()) return gemm::avx512::microkernel(type, w, x, m, prefetch_next, totals);
  gemm::avx2::microkernel(type, w, x, m, prefetch_next, totals);
}

#else

// The paths that has_int_gemm() and gemv_max_m() promise nobody here.
namespace {
[[noreturn]] void no_int_gemm() { fail("this processor has no integer GEMM"); }
}  // namespace

#if defined(__aarch64__)
void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
          const QuantizedActivations* x, std::size_t m, float* out, std::size_t out_stride) {
  static const auto kernel = processor_has_sdot() ? gemm::neon_dot::gemv : gemm::neon::gemv;
  kernel(type, w, row_bytes, n, k, x, m, out, out_stride);
}
#else
void quantize(const float*, std::size_t, QuantizedActivations*) { no_int_gemm(); }
void gemv(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
          const QuantizedActivations*, std::size_t, float*, std::size_t) {
  no_int_gemm();
}
#endif
void quantize(const float*, std::size_t, QuantizedActivationsI16*) { no_int_gemm(); }
void quantize(const float*, std::size_t, SmallBatchActivations*, std::size_t) { no_int_gemm(); }
void pack_activations(ConstMatrix, ActivationPanel*, std::size_t) { no_int_gemm(); }
void gemv_f16(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
              const QuantizedActivationsI16*, std::size_t, float*, std::size_t) {
  no_int_gemm();
}
void small_batch_gemm(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
                      const SmallBatchActivations*, std::size_t, float*, std::size_t) {
  no_int_gemm();
}
void pack_weights(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t, std::size_t,
                  std::size_t, WeightPanel&) {
  no_int_gemm();
}
void microkernel(TensorType, const WeightPanel&, const ActivationPanel&, std::size_t, bool,
                 float (*)[WeightPanel::kN]) {
  no_int_gemm();
}

#endif

}  // namespace ballast
