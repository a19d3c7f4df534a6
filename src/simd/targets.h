// Instruction sets of the kernels that use intrinsics, as target attributes. simd/cpu.h says which
// of them the processor has.
#pragma once

/// has_avx2()
#define BALLAST_AVX2_TARGET "avx2,fma,f16c"
/// has_avx512_vnni(): GEMM of integers.
#define BALLAST_AVX512_VNNI_TARGET \
  "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma,f16c"
/// has_avx512_bf16(): attention and Gram matrices.
#define BALLAST_AVX512_BF16_TARGET \
  "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni,avx512bf16"
