// Policies whose budget is bytes=, and types of storage that a method string names.
#pragma once

#include <cstddef>
#include <string_view>

#include "ballast/method.h"
#include "ballast/storage.h"
#include "ballast/summary.h"

namespace ballast {

struct StoredTypes {
  StorageType key, value;
};

/// int4, or q4/q2 for keys and values apart. Throws Error on unknown types.
StoredTypes parse_types(std::string_view text);
/// Sets the types that type= names; leaves them as they are without one. Methods with one budget
/// for the whole cache take bf16 in place of types of few bits: their tiers decide.
void set_types(const Policy& policy, StorageType& key_type, StorageType& value_type);

/// Whether bytes= stands for as many entries of each head as it holds, which a cache finds out.
/// Methods with one budget for the whole cache divide bytes= themselves.
bool bytes_are_entries(const Policy& policy);
/// The same method with budget=`entries` in place of rate=, budget= and bytes=.
Policy with_entries(const Policy& policy, std::size_t entries);
/// The budget with the first tokens in the sink, where rows have few bits: as many as the summary
/// would hold in their place.
Budget with_first(Budget budget, StorageType key_type, StorageType value_type);
/// The smallest budget= that the sink, the window and its step leave possible.
std::size_t least_entries(const Policy& policy, Protocol protocol);

/// State that heads share and that grows as texts come in.
class BoundedState : public SharedState {
 public:
  /// The most that bytes() will be. `entries`: of the summaries of one head, summed over the
  /// layers; `tokens`: those that its summaries take in.
  virtual std::size_t most_bytes(Protocol protocol, std::size_t layers, std::size_t heads,
                                 std::size_t entries, std::size_t tokens) const = 0;
};

}  // namespace ballast
