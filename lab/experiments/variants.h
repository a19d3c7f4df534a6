// What experiments compare: methods at sizes, in types of storage.
#pragma once

#include <string>
#include <vector>

#include "experiments/data/samples.h"
#include "experiments/parameters.h"

namespace ballast {

/// Everything in fewer bits, at the bytes that takes: without these rows, methods that evict look
/// better than they are.
inline constexpr std::string_view kStorageOnly =
    "exact:type=int8;exact:type=int4;exact:type=q4/q2;exact:type=q2";

/// "exact", kStorageOnly and `methods`: what experiments compare by default.
std::string with_storage_only(std::string_view methods);

/// methods with cache, rates or budgets, seeds, cache-types.
struct VariantParameters {
  std::vector<std::string> methods;
  Memory memory;
  std::size_t seeds = 1;
  std::uint64_t seed = 0;
  std::string key_type;
  std::string value_type;
  std::vector<std::string> types;  ///< empty: bf16

  /// `methods`, `sizes`: the defaults.
  void describe(Parameters& parameters, const std::string& methods, const Memory& sizes);
  /// Fills in the defaults. Throws Error on what cannot be, or contradicts itself.
  std::vector<Variant> parse();
  /// Whether one table compares several types of storage.
  bool many_types() const { return types.size() > 1; }

 private:
  std::string standard_methods_;
  Memory standard_sizes_;
};

}  // namespace ballast
