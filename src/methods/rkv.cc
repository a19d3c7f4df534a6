// R-KV: tokens that the last queries attend to and that say something new. Cai et al. 2025
// (arXiv:2505.24133), for long answers that repeat themselves.
//
//   score_j = λ I_j - (1 - λ) R_j
//   I_j: the share of the last queries' attention, the largest of `kernel` neighbours
//   R_j: softmax over j of the mean over i of cos(k_i, k_j), i ≠ j; of the tokens j that are more
//        similar to i than `similar`, the last one does not count
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/scored.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

class RKv : public ScoredSummary {
 public:
  explicit RKv(const SummarySetup& setup)
      : ScoredSummary(setup, {.attention = true}),
        importance_(setup.policy.real("lambda")),
        similar_(static_cast<float>(setup.policy.real("similar"))),
        reach_(static_cast<std::size_t>(setup.policy.integer("kernel")) / 2) {}

 protected:
  void score(const Candidates& all, std::span<float> scores) override {
    const std::size_t n = all.size();
    if (n == 0) return;
    const std::vector<double> redundancy = this->redundancy(all);
    double sum = 0;
    for (float x : all.attention) sum += double{x};
    for (std::size_t i = 0; i < n; ++i) {
      float most = 0;
      for (std::size_t j = i - std::min(i, reach_); j < std::min(n, i + reach_ + 1); ++j) {
        most = std::max(most, all.attention[j]);
      }
      const double importance = sum > 0 ? double{most} / sum : 0;
      scores[i] = static_cast<float>(importance_ * importance - (1 - importance_) * redundancy[i]);
    }
  }

 private:
  std::vector<double> redundancy(const Candidates& all) const {
    const std::size_t n = all.size(), dim = setup().key_dim;
    Matrix keys(n, dim);
    for (std::size_t i = 0; i < n; ++i) {
      all.key(i, keys[i]);
      const float square = kernels::dot(keys[i], keys[i]);
      const float scale = square > 0 ? 1 / std::sqrt(square) : 0.0f;
      for (float& x : keys[i]) x *= scale;
    }
    std::vector<double> out(n);
    std::vector<float> row(n);
    for (std::size_t i = 0; i < n; ++i) {
      std::size_t last = n;
      for (std::size_t j = 0; j < n; ++j) {
        row[j] = j == i ? 0.0f : kernels::dot(keys[i], keys[j]);
        if (row[j] > similar_) last = j;
      }
      if (last < n) row[last] = 0;
      for (std::size_t j = 0; j < n; ++j) out[j] += double{row[j]} / static_cast<double>(n);
    }
    const double most = *std::ranges::max_element(out);
    double sum = 0;
    for (double& x : out) sum += x = std::exp(x - most);
    for (double& x : out) x /= sum;
    return out;
  }

  double importance_;
  float similar_;
  std::size_t reach_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) { return std::make_unique<RKv>(setup); }

}  // namespace

const MethodInfo& rkv_method() {
  using Kind = Parameter::Kind;
  static const MethodInfo info = {
      .name = "rkv",
      .title = "tokens that the last queries attend to, without those that repeat others",
      .paper = "Cai et al. 2025, R-KV (arXiv:2505.24133)",
      .parameters = {{"observe", Kind::integer, "8", 1, 65536, "",
                      "last tokens whose queries choose"},
                     {"kernel", Kind::integer, "7", 1, 65, "",
                      "tokens of which the most attended one counts; even: as the next odd one"},
                     {"lambda", Kind::real, "0.1", 0, 1, "", "weight of attention"},
                     {"similar", Kind::real, "0.5", -1, 1, "",
                      "cosine of keys above which a token repeats another"}},
      .sink = 4,
      .window = 8,
      .step = 128,
      .keeps_generated = false,
      .needs = {.recent_queries = true},
      .make = make,
  };
  return info;
}

}  // namespace ballast
