#include "experiments/papers/paper_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/running_mean.h"

namespace ballast {
namespace {

constexpr double kTwoErrors = 1.96;  // of 95% of normal draws

struct Measured {
  double value = 0;
  double error = 0;
  std::vector<double> scores = {};  ///< of each sample, where the row has them
};

std::optional<Measured> measured(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end() || !found->is_number()) return {};
  Measured out{found->get<double>(), 0};
  for (const char* name : {"_error", "_sd_seeds"}) {
    const auto error = row.find(column + name);
    if (error == row.end() || !error->is_number()) continue;
    out.error = error->get<double>();
    break;
  }
  if (!std::isfinite(out.value) || !std::isfinite(out.error)) return {};
  if (column == "score" && row.contains("scores")) row["scores"].get_to(out.scores);
  return out;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool matches(const std::string& name, const std::string& pattern) {
  if (pattern.empty() || pattern.back() != '*') return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

constexpr std::array kSizes = {"rate", "share", "budget"};
constexpr std::array kPlaces = {"layer",  "lines",  "length", "task",    "data",
                                "prompt", "tokens", "part",   "centres", "shots"};
constexpr std::array kTypes = {"cache_type", "key_type"};

/// The values of `keys` in a row, but for `by`.
template <typename Keys>
std::string values_of(const Json& row, const Keys& keys, const std::string& by) {
  std::string out;
  for (const char* key : keys) {
    if (by == key || !row.contains(key)) continue;
    out += fmt::format("{}={};", key, text_of(row[key]));
  }
  return out;
}

/// What two rows must share to be compared.
std::string setting_of(const Json& row, const std::string& by) {
  std::string out =
      values_of(row, kSizes, by) + values_of(row, kPlaces, by) + values_of(row, kTypes, by);
  // A method's name may have the parameter in it that `by` names, except types of storage.
  if ((by == "key_type" || by == "cache_type") && row.contains("method"))
    out += text_of(row["method"]);
  return out;
}

/// Whether a row is the mean of others.
bool is_mean(const Json& row) {
  return std::ranges::any_of(
      kPlaces, [&](const char* key) { return row.contains(key) && row[key] == "all"; });
}

/// The places where the exact cache answers by chance.
std::set<std::string> chance_places(const PaperClaim& claim, std::span<const Json> rows) {
  std::set<std::string> out;
  if (claim.metric != "score" || claim.lower) return out;
  for (const Json& row : rows) {
    if (!row.contains("method") || row["method"] != "exact") continue;
    constexpr double kCopied = 0.1;  // words of the text that an answer happens to hold
    const auto found = measured(row, "score");
    if (found && found->value - kTwoErrors * found->error <= row.value("chance", kCopied)) {
      out.insert(values_of(row, kPlaces, ""));
    }
  }
  return out;
}

/// The standard error of a - b.
double error_of_difference(const Measured& a, const Measured& b) {
  if (a.scores.size() != b.scores.size() || a.scores.size() < 2) {
    return std::hypot(a.error, b.error);
  }
  RunningMean difference;
  for (std::size_t i = 0; i < a.scores.size(); ++i) difference.add(a.scores[i] - b.scores[i]);
  return difference.error();
}

/// The difference that the paper reports, in the unit of the numbers here.
double paper_difference(const PaperClaim& claim, double larger) {
  const double difference = std::abs(claim.paper_better - claim.paper_worse);
  if (claim.level || !std::isfinite(difference) || difference == 0) return larger / 10;
  if (claim.metric == "score") return claim.paper_better > 1 ? difference / 100 : difference;
  return difference / std::max(std::abs(claim.paper_better), std::abs(claim.paper_worse)) * larger;
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
  if (pairs == 0) return at_chance > 0 ? "exact at chance: needs a larger model" : "not measured";
  if (holds == pairs) return "agrees";
  if (level == pairs) return "level";
  if (undecided == pairs) return "undecided";
  if (holds + level + undecided == 0) return "disagrees";
  return fmt::format("agrees in {} of {}{}{}", holds, pairs,
                     level > 0 ? fmt::format(", level in {}", level) : "",
                     undecided > 0 ? fmt::format(", undecided in {}", undecided) : "");
}

ClaimVerdict judge(const PaperClaim& claim, std::span<const Json> rows) {
  std::map<std::string, Pair> pairs;
  std::size_t number = 0;
  const bool bounded = std::isfinite(claim.bound);
  const std::optional<Measured> bound = Measured{claim.bound, 0};
  const std::set<std::string> chance = chance_places(claim, rows);
  std::set<std::string> without_verdict;
  std::map<std::string, Measured> exact;  // of each place, whatever the size of the others
  std::map<std::string, std::string> place_of;
  for (const Json& row : rows) {
    if (is_mean(row)) continue;
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
    if (chance.contains(values_of(row, kPlaces, ""))) {
      if (matches(name, claim.better)) without_verdict.insert(setting_of(row, claim.by));
      continue;
    }
    const std::string place = values_of(row, kPlaces, "");
    if (name == "exact") exact[place] = *found;
    const std::string setting = setting_of(row, claim.by);
    place_of[setting] = place;
    Pair& pair = pairs[setting];
    if (matches(name, claim.better)) keep_best(pair.better, *found, claim.lower);
    if (matches(name, claim.worse)) keep_best(pair.worse, *found, claim.lower);
  }
  ClaimVerdict out;
  out.at_chance = without_verdict.size();
  double better = 0, worse = 0;
  for (auto& [setting, pair] : pairs) {
    // The exact cache has one size and is compared with all.
    if (claim.worse == "exact" && !pair.worse && exact.contains(place_of[setting])) {
      pair.worse = exact[place_of[setting]];
    }
    if (!pair.better || !pair.worse) continue;
    ++out.pairs;
    better += pair.better->value;
    worse += pair.worse->value;
    const double gain = claim.lower ? pair.worse->value - pair.better->value
                                    : pair.better->value - pair.worse->value;
    const double larger = std::max(std::abs(pair.better->value), std::abs(pair.worse->value));
    const double error = std::max(kTwoErrors * error_of_difference(*pair.better, *pair.worse),
                                  claim.tolerance * larger);
    if (std::abs(gain) > error) {
      out.holds += gain > 0 && !claim.level ? 1 : 0;
    } else if (error > std::max(paper_difference(claim, larger), claim.tolerance * larger)) {
      ++out.undecided;
    } else {
      ++(claim.level ? out.holds : out.level);
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
    if (!found || claim.by.empty() || !row.contains(claim.by) || is_mean(row)) continue;
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
