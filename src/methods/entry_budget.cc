#include "methods/entry_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "storage/low_bits.h"

namespace ballast {
namespace {

/// Calls `visit` with every key=value that the method string gives.
template <typename Visit>
void visit_given(const std::string& text, const Visit& visit) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return;
  for (std::size_t begin = colon + 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = std::string_view(text).substr(begin, end - begin);
    visit(item.substr(0, item.find('=')), item);
    begin = end + 1;
  }
}

bool is_given(const Policy& policy, std::string_view wanted) {
  bool given = false;
  visit_given(policy.to_string(),
              [&](std::string_view key, std::string_view) { given = given || key == wanted; });
  return given;
}

}  // namespace

StoredTypes parse_types(std::string_view text) {
  const std::size_t slash = text.find('/');
  const StorageType key = parse_storage_type(text.substr(0, slash));
  return {key, slash == std::string_view::npos ? key : parse_storage_type(text.substr(slash + 1))};
}

void set_types(const Policy& policy, StorageType& key_type, StorageType& value_type) {
  if (policy.has("type")) {
    const StoredTypes types = parse_types(policy.text("type"));
    key_type = types.key;
    value_type = types.value;
  }
  if (!policy.info().global_budget) return;
  key_type = as_read(key_type);
  value_type = as_read(value_type);
}

bool bytes_are_entries(const Policy& policy) {
  return !policy.info().global_budget && policy.has("bytes");
}

Policy with_entries(const Policy& policy, std::size_t entries) {
  std::string text = fmt::format("{}:budget={}", policy.info().name, entries);
  visit_given(policy.to_string(), [&](std::string_view key, std::string_view item) {
    if (key != "rate" && key != "budget" && key != "bytes") text.append(",").append(item);
  });
  return Policy::parse(text);
}

Budget with_first(Budget budget, StorageType key_type, StorageType value_type) {
  if (!is_low_bit(key_type) && !is_low_bit(value_type)) return budget;
  const std::size_t more =
      std::min(budget.summary, kFirstTokens - std::min(budget.sink, kFirstTokens));
  budget.sink += more;
  budget.summary -= more;
  return budget;
}

std::size_t least_entries(const Policy& policy, Protocol protocol) {
  const MethodInfo& info = policy.info();
  const auto size_or = [&](std::string_view key, std::size_t standard) {
    return policy.has(key) ? static_cast<std::size_t>(policy.integer(key)) : standard;
  };
  const bool fixed_window = policy.has("window") || info.window_policy == WindowPolicy::fixed;
  const bool slides = protocol == Protocol::stream || !policy.keeps_generated();
  const std::size_t step = !slides ? 0 : is_given(policy, "step") ? size_or("step", 1) : 1;
  const bool pyramid = policy.has("layers") ? policy.choice("layers") == "pyramid" : info.pyramid;
  const std::size_t window = fixed_window ? size_or("window", info.window) : 0;
  // The top of a pyramid has a 20th of what sink and window leave.
  return std::max<std::size_t>(1,
                               size_or("sink", info.sink) + window + (pyramid ? 20 * step : step));
}

}  // namespace ballast
