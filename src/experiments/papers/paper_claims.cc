#include "experiments/papers/paper_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

namespace ballast {
namespace {

struct Measured {
  double value = 0;
  double error = 0;
};

std::optional<Measured> measured(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end() || !found->is_number()) return {};
  Measured out{found->get<double>(), 0};
  const auto error = row.find(column + "_error");
  if (error != row.end() && error->is_number()) out.error = error->get<double>();
  if (!std::isfinite(out.value) || !std::isfinite(out.error)) return {};
  return out;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool matches(const std::string& name, const std::string& pattern) {
  if (pattern.empty() || pattern.back() != '*') return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

/// What two rows must share to be compared.
std::string setting_of(const Json& row, const std::string& by) {
  constexpr std::array keys = {"rate",       "share", "budget",  "layer",  "lines",
                               "length",     "task",  "data",    "prompt", "tokens",
                               "cache_type", "part",  "centres", "shots",  "key_type"};
  std::string out;
  for (const char* key : keys) {
    if (by == key || !row.contains(key)) continue;
    out += fmt::format("{}={};", key, text_of(row[key]));
  }
  // A method's name may have the parameter in it that `by` names, except types of storage.
  if ((by == "key_type" || by == "cache_type") && row.contains("method"))
    out += text_of(row["method"]);
  return out;
}

struct Pair {
  std::optional<Measured> better, worse;
};

void keep_best(std::optional<Measured>& best, const Measured& found, bool lower) {
  const bool improves = !best || (lower ? found.value < best->value : found.value > best->value);
  if (improves) best = found;
}

}  // namespace

std::string ClaimVerdict::text() const {
  if (pairs == 0) return "not measured";
  if (holds == pairs) return "agrees";
  if (level == pairs) return "level";
  if (holds == 0 && level == 0) return "disagrees";
  return fmt::format("agrees in {} of {}{}", holds, pairs,
                     level > 0 ? fmt::format(", level in {}", level) : "");
}

ClaimVerdict judge(const PaperClaim& claim, std::span<const Json> rows) {
  std::map<std::string, Pair> pairs;
  std::size_t number = 0;
  const bool bounded = std::isfinite(claim.bound);
  const std::optional<Measured> bound = Measured{claim.bound, 0};
  for (const Json& row : rows) {
    if (claim.by.empty()) {
      Pair& pair = pairs[fmt::format("{}", number++)];
      pair.better = measured(row, claim.better);
      pair.worse = bounded ? bound : measured(row, claim.worse);
      continue;
    }
    const auto found = measured(row, claim.metric);
    if (!found || !row.contains(claim.by)) continue;
    const std::string name = text_of(row[claim.by]);
    if (bounded) {
      if (!matches(name, claim.better)) continue;
      pairs[fmt::format("{}", number++)] = {found, bound};
      continue;
    }
    Pair& pair = pairs[setting_of(row, claim.by)];
    if (matches(name, claim.better)) keep_best(pair.better, *found, claim.lower);
    if (matches(name, claim.worse)) keep_best(pair.worse, *found, claim.lower);
  }
  ClaimVerdict out;
  double better = 0, worse = 0;
  for (const auto& [setting, pair] : pairs) {
    if (!pair.better || !pair.worse) continue;
    ++out.pairs;
    better += pair.better->value;
    worse += pair.worse->value;
    const double gain = claim.lower ? pair.worse->value - pair.better->value
                                    : pair.better->value - pair.worse->value;
    const double larger = std::max(std::abs(pair.better->value), std::abs(pair.worse->value));
    const double error =
        std::max(std::hypot(pair.better->error, pair.worse->error), claim.tolerance * larger);
    if (claim.level) {
      out.holds += std::abs(gain) <= 1.96 * error ? 1 : 0;
    } else if (std::abs(gain) <= error) {
      ++out.level;
    } else if (gain > 0) {
      ++out.holds;
    }
  }
  if (out.pairs > 0) {
    out.better = better / static_cast<double>(out.pairs);
    out.worse = worse / static_cast<double>(out.pairs);
  }
  return out;
}

std::vector<RankedName> ranking(const PaperClaim& claim, std::span<const Json> rows) {
  std::vector<RankedName> out;
  for (const Json& row : rows) {
    const auto found = measured(row, claim.metric);
    if (!found || claim.by.empty() || !row.contains(claim.by)) continue;
    const std::string name = text_of(row[claim.by]);
    auto at = std::ranges::find(out, name, &RankedName::name);
    if (at == out.end()) at = out.insert(out.end(), {name, 0, 0});
    at->mean += found->value;
    ++at->settings;
  }
  for (RankedName& name : out) name.mean /= static_cast<double>(name.settings);
  std::ranges::stable_sort(out, [&](const RankedName& a, const RankedName& b) {
    return claim.lower || claim.least_first ? a.mean < b.mean : a.mean > b.mean;
  });
  return out;
}

}  // namespace ballast
