// Integer GEMM of every type but F32 and GEMV of F16 and BF16, with AVX2. GEMV of quantized weights
// takes longer to compile than everything here and has a file of its own.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Code from here on needs has_avx2().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "gemm/avx2-inl.h"
// after avx2-inl.h
#include "gemm/gemm-inl.h"
#include "gemm/gemv_f16-inl.h"
HWY_POP_ATTRIBUTES

#endif
