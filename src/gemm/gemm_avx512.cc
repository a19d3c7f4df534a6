// Integer GEMM of every type but F32 and GEMV of F16 and BF16, with AVX-512. GEMV of quantized
// weights takes longer to compile than everything here and has a file of its own.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Code from here on needs has_avx512_vnni().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
// after avx512-inl.h
#include "gemm/gemm-inl.h"
#include "gemm/gemv_f16-inl.h"
HWY_POP_ATTRIBUTES

#endif
