// Products of many activations with weights of all types but F32, with AVX2.
#include "model/integer_kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx2() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "model/integer_avx2-inl.h"
#include "model/integer_panels-inl.h"
HWY_POP_ATTRIBUTES

#endif
