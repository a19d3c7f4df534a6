// Kernels of q4, q3 and q2 for processors that multiply bytes in fours (AVX512_VNNI, AVX512_VBMI).
// Elsewhere codes-inl.h multiplies them.
#pragma once

#include <cstddef>
#include <span>

#include "attention/kernels/attention_kernels.h"
#include "ballast/storage.h"
#include "simd/cpu.h"

namespace ballast::kernels::avx512 {

/// Whether rows of rotated types are multiplied here, on this processor.
inline bool multiplies_rotated() { return detail::has(detail::kBf16 | detail::kVnni); }

/// qk_block() and av_block() for rotated types. Weights times the scales of their rows are rounded
/// to 8 bits, with one scale for 64 entries.
void qk_rotated(const RowsView& keys, const float* queries, std::size_t count, float* logits,
                const PrefetchRange* range);
void av_rotated(const RowsView& values, const float* weights, std::size_t count,
                const float* factors, float* sums, const PrefetchRange* range);

}  // namespace ballast::kernels::avx512
