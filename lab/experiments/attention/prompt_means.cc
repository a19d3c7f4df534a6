#include "experiments/attention/prompt_means.h"

#include <fmt/format.h>

#include <cmath>

#include "base/fail.h"
#include "base/running_mean.h"
#include "experiments/metrics/interval.h"

namespace ballast {
namespace {

/// Of one field in all results.
Json mean_of(std::span<const Json* const> fields) {
  const Json& first = *fields[0];
  if (first.is_array()) {
    Json out = Json::array();
    for (std::size_t i = 0; i < first.size(); ++i) {
      std::vector<const Json*> elements;
      for (const Json* field : fields) {
        if (i >= field->size()) return first;
        elements.push_back(&(*field)[i]);
      }
      out.push_back(mean_of(elements));
    }
    return out;
  }
  RunningMean mean;
  bool equal = true;
  for (const Json* field : fields) {
    if (!field->is_number()) return first;
    equal = equal && *field == first;
    mean.add(field->get<double>());
  }
  return equal ? first : Json(mean.mean());
}

}  // namespace

Result mean_over_prompts(std::vector<Result> results, std::span<const std::string> keys) {
  require(!results.empty(), "there is no result to take a mean of");
  const std::size_t count = results.size();
  Result out = results[0];
  for (std::size_t r = 0; r < out.rows.size(); ++r) {
    std::vector<const Json*> rows;
    for (const Result& result : results) {
      require(result.rows.size() == out.rows.size(), "{}: {} rows, {} in {}", result.title,
              result.rows.size(), out.rows.size(), out.title);
      rows.push_back(&result.rows[r]);
    }
    Json& row = out.rows[r];
    for (auto& [key, value] : row.items()) {
      std::vector<const Json*> fields;
      for (const Json* other : rows) {
        require(other->contains(key), "one of the results lacks {}", key);
        fields.push_back(&other->at(key));
      }
      value = mean_of(fields);
    }
    for (const std::string& key : keys) {
      RunningMean mean;
      for (const Json* other : rows) mean.add(other->at(key).get<double>());
      const double half = student_t(static_cast<double>(count) - 1) * mean.error();
      row[key + "_error"] = mean.error();
      if (count < 2) continue;
      row[key + "_low"] = mean.mean() - half;
      row[key + "_high"] = mean.mean() + half;
    }
    row["prompts"] = count;
  }
  return out;
}

}  // namespace ballast
