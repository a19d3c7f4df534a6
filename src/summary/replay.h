// What the cache needs to know of the method `replay` to divide its budget.
#pragma once

#include <vector>

#include "ballast/method.h"
#include "ballast/summary.h"
#include "summary/allocation.h"

namespace ballast {

/// The tiers of a policy with tiers=, for rows of these dimensions. In stream every entry keeps its
/// score, and with score=max the norm that its score is made with.
std::vector<Tier> replay_tiers(const Policy& policy, Protocol protocol, std::size_t key_dim,
                               std::size_t value_dim);

/// A summary of entries in tiers, for methods with tiers=.
std::unique_ptr<Summary> make_tiered(const SummarySetup& setup);

/// The keys of such a method: bytes, tiers, chunk, sink and window, with these defaults.
std::vector<Parameter> tiered_parameters(std::string_view tiers, std::string_view chunk,
                                         std::string_view window);

}  // namespace ballast
