#include "experiments/attention/set_functions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/fail.h"

namespace ballast {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

std::uint32_t bit(std::size_t i) { return std::uint32_t{1} << i; }

/// Softmax of a query over the tokens of the subset; 0 outside it, and where nothing is seen.
std::vector<double> weights(const GroundAttention& a, std::size_t query, std::uint32_t subset) {
  const std::size_t n = a.logits.cols();
  double largest = kNone;
  for (std::size_t i = 0; i < n; ++i) {
    if ((subset & bit(i)) != 0) largest = std::max(largest, double{a.logits[query][i]});
  }
  std::vector<double> out(n, 0.0);
  if (largest == kNone) return out;
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if ((subset & bit(i)) == 0) continue;
    out[i] = std::exp(double{a.logits[query][i]} - largest);
    sum += out[i];
  }
  for (double& x : out) x /= sum;
  return out;
}

std::uint32_t everything(const GroundAttention& a) { return bit(a.logits.cols()) - 1; }

std::vector<std::vector<double>> all_weights(const GroundAttention& a) {
  std::vector<std::vector<double>> out;
  for (std::size_t q = 0; q < a.logits.rows(); ++q) out.push_back(weights(a, q, everything(a)));
  return out;
}

double sum_of(const std::vector<double>& x, std::uint32_t subset) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (subset & bit(i)) != 0 ? x[i] : 0.0;
  return sum;
}

std::vector<double> answer(const GroundAttention& a, std::size_t query, std::uint32_t subset) {
  const std::vector<double> w = weights(a, query, subset);
  std::vector<double> out(a.values.cols(), 0.0);
  for (std::size_t i = 0; i < w.size(); ++i) {
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += w[i] * double{a.values[i][c]};
  }
  return out;
}

}  // namespace

SetFunction SetFunction::of(std::size_t ground, const std::function<double(std::uint32_t)>& value) {
  require(ground >= 1 && ground <= 20, "a ground set of {} elements; 1 to 20 can be searched",
          ground);
  SetFunction out{ground, std::vector<double>(std::size_t{1} << ground)};
  for (std::uint32_t mask = 0; mask < out.value.size(); ++mask) out.value[mask] = value(mask);
  return out;
}

std::uint32_t greedy_set(const SetFunction& f, std::size_t keep) {
  std::uint32_t set = 0;
  for (std::size_t k = 0; k < std::min(keep, f.ground); ++k) {
    std::uint32_t best = 0;
    for (std::size_t i = 0; i < f.ground; ++i) {
      if ((set & bit(i)) != 0) continue;
      if (best == 0 || f.value[set | bit(i)] > f.value[best]) best = set | bit(i);
    }
    set = best;
  }
  return set;
}

std::uint32_t best_set(const SetFunction& f, std::size_t keep) {
  std::uint32_t best = 0;
  bool found = false;
  for (std::uint32_t mask = 0; mask < f.value.size(); ++mask) {
    if (static_cast<std::size_t>(std::popcount(mask)) != std::min(keep, f.ground)) continue;
    if (!found || f.value[mask] > f.value[best]) best = mask;
    found = true;
  }
  return best;
}

Diminishing diminishing_returns(const SetFunction& f) {
  Diminishing out;
  std::size_t all = 0, held = 0;
  double largest = 0;
  for (double x : f.value) largest = std::max(largest, std::abs(x));
  const double rounding = 1e-9 * largest;
  for (std::uint32_t set = 0; set < f.value.size(); ++set) {
    for (std::size_t i = 0; i < f.ground; ++i) {
      if ((set & bit(i)) != 0) continue;
      out.monotone = out.monotone && f.value[set | bit(i)] >= f.value[set] - rounding;
      for (std::size_t j = i + 1; j < f.ground; ++j) {
        if ((set & bit(j)) != 0) continue;
        const double apart = f.value[set | bit(i)] + f.value[set | bit(j)] - 2 * f.value[set];
        const double together = f.value[set | bit(i) | bit(j)] - f.value[set];
        ++all;
        held += apart >= together - rounding ? 1 : 0;
        if (together > 0.01 * largest) out.ratio = std::min(out.ratio, apart / together);
      }
    }
  }
  if (all > 0) out.holds = static_cast<double>(held) / static_cast<double>(all);
  return out;
}

SetFunction score_function(const GroundAttention& a) {
  std::vector<double> sums(a.logits.cols(), 0.0);
  for (const std::vector<double>& row : all_weights(a)) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += row[i];
  }
  return SetFunction::of(sums.size(),
                         [&](std::uint32_t set) { return std::log1p(sum_of(sums, set)); });
}

SetFunction coverage_function(const GroundAttention& a) {
  const auto rows = all_weights(a);
  return SetFunction::of(a.logits.cols(), [&](std::uint32_t set) {
    double sum = 0;
    for (const std::vector<double>& row : rows) sum += std::log1p(sum_of(row, set));
    return sum;
  });
}

SetFunction output_function(const GroundAttention& a) {
  std::vector<std::vector<double>> exact;
  for (std::size_t q = 0; q < a.logits.rows(); ++q) exact.push_back(answer(a, q, everything(a)));
  return SetFunction::of(a.logits.cols(), [&](std::uint32_t set) {
    double saved = 0;
    for (std::size_t q = 0; q < exact.size(); ++q) {
      const std::vector<double> z = answer(a, q, set);
      for (std::size_t c = 0; c < z.size(); ++c) {
        const double off = z[c] - exact[q][c];
        saved += exact[q][c] * exact[q][c] - off * off;
      }
    }
    return saved;
  });
}

std::uint32_t h2o_set(const GroundAttention& a, std::size_t keep) {
  const std::size_t n = a.logits.cols();
  require(a.logits.rows() == n, "{} queries of {} tokens", a.logits.rows(), n);
  std::vector<double> sums(n, 0.0);
  std::uint32_t set = 0;
  for (std::size_t i = 0; i < n; ++i) {
    set |= bit(i);
    const std::vector<double> w = weights(a, i, set);
    for (std::size_t s = 0; s <= i; ++s) sums[s] += w[s];
    if (static_cast<std::size_t>(std::popcount(set)) <= keep) continue;
    std::size_t least = n;
    for (std::size_t s = 0; s <= i; ++s) {
      if ((set & bit(s)) != 0 && (least == n || sums[s] < sums[least])) least = s;
    }
    set &= ~bit(least);
  }
  return set;
}

}  // namespace ballast
