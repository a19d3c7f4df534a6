#include "methods/adaptive.h"

#include <algorithm>
#include <numeric>

namespace ballast {

std::vector<Parameter> adaptive_parameters(std::string_view standard) {
  using Kind = Parameter::Kind;
  return {{"heads", Kind::choice, standard, 0, 0, "uniform|adaptive",
           "prefill: adaptive divides a layer's budget by the scores of its heads (AdaKV)"},
          {"floor", Kind::real, "0.2", 0, 1, "",
           "adaptive heads: part of an equal share that every head keeps"}};
}

bool has_adaptive_heads(const Policy& policy) {
  const std::vector<Parameter>& own = policy.info().parameters;
  return std::ranges::find(own, std::string_view("heads"), &Parameter::name) != own.end() &&
         policy.choice("heads") == "adaptive";
}

std::vector<std::size_t> adaptive_budgets(std::span<const std::vector<float>> scores,
                                          std::size_t per_head, double floor) {
  struct Candidate {
    float score;
    std::size_t token, head;
    bool before(const Candidate& other) const {
      if (score != other.score) return score > other.score;
      return token != other.token ? token > other.token : head < other.head;
    }
  };
  const auto safe = static_cast<std::size_t>(floor * static_cast<double>(per_head));
  std::vector<std::size_t> budgets;
  std::vector<Candidate> others, own;
  std::size_t taken = 0;
  const auto before = [](const Candidate& a, const Candidate& b) { return a.before(b); };
  for (std::size_t h = 0; h < scores.size(); ++h) {
    own.clear();
    for (std::size_t i = 0; i < scores[h].size(); ++i) own.push_back({scores[h][i], i, h});
    const std::size_t kept = std::min(safe, own.size());
    const auto cut = own.begin() + static_cast<std::ptrdiff_t>(kept);
    std::ranges::nth_element(own, cut, before);
    others.insert(others.end(), cut, own.end());
    budgets.push_back(kept);
    taken += kept;
  }
  const std::size_t left = std::min(per_head * scores.size() - taken, others.size());
  std::ranges::nth_element(others, others.begin() + static_cast<std::ptrdiff_t>(left), before);
  for (std::size_t i = 0; i < left; ++i) ++budgets[others[i].head];
  return budgets;
}

}  // namespace ballast
