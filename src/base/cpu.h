// What the processor can do beyond the targets that Highway knows.
#pragma once

namespace ballast {

/// Whether bfloat16 dot products (vdpbf16ps) may be used: the processor has them beside the common
/// parts of AVX-512 (F, BW, DQ, VL, VBMI), and Highway's switch of targets does not forbid AVX-512.
bool has_avx512_bf16();

/// Whether dot products of bytes and of words (vpdpbusd, vpdpwssd) may be used, with the same parts
/// of AVX-512.
bool has_avx512_vnni();

/// Whether AVX2, FMA and conversions of float16 may be used: the processor has them, and Highway's
/// switch of targets does not forbid AVX2.
bool has_avx2();

/// Makes all kernels run as on a processor without AVX-512, for measurements. Throws Error if this
/// one has no AVX2. To be called before models and caches are made.
void forbid_avx512();

}  // namespace ballast
