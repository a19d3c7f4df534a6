// Products of many activations with weights of all types but F32, with AVX-512.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
#include "gemm/gemm-inl.h"
HWY_POP_ATTRIBUTES

#endif
