#include "experiments/variants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/fail.h"
#include "experiments/data/packed_variant.h"

namespace ballast {

std::string with_storage_only(std::string_view methods) {
  return fmt::format("exact;{};{}", kStorageOnly, methods);
}

void VariantParameters::describe(Parameters& p, const std::string& standard_methods,
                                 const Memory& sizes) {
  standard_methods_ = standard_methods;
  standard_sizes_ = sizes;
  const auto standard = [](const auto& values) {
    return values.empty() ? "" : fmt::format(" [{}]", fmt::join(values, ","));
  };
  p.group("Methods");
  p.add("--methods", methods,
        "Method strings, separated by ',' or ';' or given repeatedly; packed:1/16 and other forms "
        "that a model's basis has (ballast calibrate) [" +
            standard_methods + "]");
  p.add("--cache,--shares", memory.caches,
        "Memory of the whole cache: 1/8, 0.125 or 12% of the exact bf16 cache of the tokens read, "
        "256M, 40K/token; each method keeps as much as fits" +
            standard(sizes.caches),
        {.separated = true});
  p.add("--rates", memory.rates,
        "Entries kept instead, as fractions of those read" + standard(sizes.rates));
  p.add("--budgets", memory.budgets, "Entries kept instead, as numbers" + standard(sizes.budgets));
  p.add("--seeds", seeds, "Runs of each method, with seeds counted up from --seed");
  p.add("--seed", seed, "First seed");
  p.add("--cache-types,--cache-type", types,
        "Storage of keys and values: f32, f16, bf16, int8, int4, q4, q3, q2; several are compared "
        "[bf16]",
        {.separated = true});
  p.add("--key-type", key_type, "Storage of keys, if another", {.type = "TYPE"});
  p.add("--value-type", value_type, "Storage of values, if another", {.type = "TYPE"});
  p.group("");
}

std::vector<Variant> VariantParameters::parse() {
  if (methods.empty()) methods = {standard_methods_};
  const std::vector<std::string> names = split_methods(methods);
  const bool own = std::ranges::any_of(
      names, [](const std::string& name) { return policy_of(name).has_memory(); });
  if (memory.empty() && !own) memory = standard_sizes_;
  if (types.empty()) types = {"bf16"};
  require(types.size() == 1 || (key_type.empty() && value_type.empty()),
          "--key-type and --value-type need a single --cache-type");
  std::vector<Variant> all;
  for (const std::string& type : types) {
    const auto made = make_variants(names, memory, seeds, seed,
                                    parse_storage_type(key_type.empty() ? type : key_type),
                                    parse_storage_type(value_type.empty() ? type : value_type));
    // A type in the method string goes before these.
    std::ranges::copy_if(made, std::back_inserter(all), [&](const Variant& variant) {
      return std::ranges::none_of(all, [&](const Variant& a) {
        return a.same_types(variant) && a.name() == variant.name() && a.seed == variant.seed;
      });
    });
  }
  return all;
}

}  // namespace ballast
