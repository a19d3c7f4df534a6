// What the cache needs to know of the method `replay` to divide its budget.
#pragma once

#include <vector>

#include "ballast/method.h"
#include "summary/allocation.h"

namespace ballast {

/// The tiers of a policy with tiers=, for rows of these dimensions.
std::vector<Tier> replay_tiers(const Policy& policy, std::size_t key_dim, std::size_t value_dim);

}  // namespace ballast
