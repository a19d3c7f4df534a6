// Products of a few activations with 16-bit floats as they lie, with AVX2.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx2() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "gemm/avx2-inl.h"
#include "gemm/gemv_f16-inl.h"
HWY_POP_ATTRIBUTES

#endif
