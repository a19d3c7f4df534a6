// What attention works in, for those who estimate memory.
#pragma once

#include <cstddef>

namespace ballast {

/// Bytes that attend(), or attend_with_attention_sum(), allocates for so many queries over so many
/// entries.
std::size_t attention_scratch(std::size_t queries, std::size_t entries, std::size_t key_dim,
                              std::size_t value_dim, bool with_attention_sum);

}  // namespace ballast
