// Products of a few activations with 16-bit floats as they lie, with AVX2.
#include "model/integer_kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx2() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "model/integer_avx2-inl.h"
#include "model/integer_words-inl.h"
HWY_POP_ATTRIBUTES

#endif
