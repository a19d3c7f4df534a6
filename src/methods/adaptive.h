// AdaKV: the heads of a layer divide its budget by their scores. Feng et al. 2024
// (arXiv:2407.11550), Algorithm 1 with its safeguard.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/method.h"

namespace ballast {

/// heads=uniform|adaptive and floor=, for methods whose summaries have scores().
std::vector<Parameter> adaptive_parameters(std::string_view standard);

/// Whether the heads of a layer divide its budget by their scores.
bool has_adaptive_heads(const Policy& policy);

/// Entries of each head when all together keep `per_head` each in the mean, given the scores of
/// every head's candidates. Each keeps its best floor · per_head, rounded down; what is left goes
/// to the best scores of all heads, of equals to the newer token and the lower head.
std::vector<std::size_t> adaptive_budgets(std::span<const std::vector<float>> scores,
                                          std::size_t per_head, double floor);

}  // namespace ballast
