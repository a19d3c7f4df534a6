// Products of many activations with weights of all types but F32, with AVX2.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx2() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "gemm/avx2-inl.h"
#include "gemm/gemm-inl.h"
HWY_POP_ATTRIBUTES

#endif
