// What the cache needs to know of the method `replay` to divide its budget.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/method.h"
#include "ballast/summary.h"
#include "methods/allocation.h"

namespace ballast {

/// The tiers of a policy with tiers=, for rows of these dimensions. In stream every entry keeps its
/// score, and with score=max the norm that its score is made with.
std::vector<Tier> replay_tiers(const Policy& policy, Protocol protocol, std::size_t key_dim,
                               std::size_t value_dim);

/// Means of neighbours among the evicted, with weights. They take part of the budget.
struct MeansTier {
  double part = 0;  ///< of the budget, from 0 to 1; 0: there are none
  Tier tier;        ///< of its entries: safe_tier(); bytes: with the weight
};

/// The means that a policy with tiers= asks for. In stream there are none.
MeansTier means_of(const Policy& policy, Protocol protocol, std::span<const Tier> tiers);

/// Whether the method has reach=.
bool takes_reach(const Policy& policy);
/// reach= of the policy: no query looks so many tokens back. 0: there is no such limit.
std::size_t reach_of(const Policy& policy);

/// A summary of entries in tiers, for methods with tiers=. SummarySetup::capacity: entries that it
/// will hold; those beyond what the tiers keep are means.
std::unique_ptr<Summary> make_tiered(const SummarySetup& setup);

/// Whether a chunk that is read again scores its own entries alone (reading=own).
bool reads_own(const Policy& policy);

/// The keys of such a method: bytes, tiers, chunk, floor, sink and window, with these defaults.
std::vector<Parameter> tiered_parameters(std::string_view tiers, std::string_view chunk,
                                         std::string_view window, std::string_view floor = "0");
/// The same and reading=, of methods that read a text twice.
std::vector<Parameter> rereading_parameters(std::string_view tiers, std::string_view chunk,
                                            std::string_view window);
/// The tiers of the methods that give every entry a precision.
inline constexpr std::string_view kTiers = "int8+q4+q4/q3+q3+q3/q2+q2";

}  // namespace ballast
