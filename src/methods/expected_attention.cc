// Expected Attention: the tokens that queries to come are expected to look at, if these are
// distributed as those of the text were. Devoto et al. 2025 (arXiv:2510.00636), section 3, with
// the head budgets of AdaKV (arXiv:2407.11550).
//
//   z_j = s mu'.k_j + s² k_j^T S' k_j / 2       mu', S': mean and covariance of a query head's
//   a_j = softmax over j of z_j                 queries, turned by the mean rotation of positions
//   score_j = (mean of a_j + epsilon) |v_j|     to come; s = 1/sqrt(d); mean over the query heads
#include <algorithm>
#include <cmath>

#include "methods/adaptive.h"
#include "methods/query_moments.h"
#include "methods/registry.h"
#include "methods/scored.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

class ExpectedAttention : public ScoredSummary {
 public:
  explicit ExpectedAttention(const SummarySetup& setup)
      : ScoredSummary(setup, {}),
        epsilon_(setup.policy.real("epsilon")),
        horizon_(static_cast<std::size_t>(setup.policy.integer("horizon"))) {}

 protected:
  void score(const Candidates& all, std::span<float> scores) override {
    const std::size_t n = all.size();
    if (n == 0) return;
    const QueryMoments* known = all.block.observed->query_moments();
    const std::size_t heads = known == nullptr ? 0 : known->query_heads();
    std::vector<double> expected(n, heads == 0 ? 1.0 / static_cast<double>(n) : 0.0), logits(n);
    for (std::size_t g = 0; g < heads; ++g) {
      expected_logits(all, known->turned(g, all.block.now, horizon_), logits);
      const double most = *std::ranges::max_element(logits);
      double sum = 0;
      for (double& z : logits) sum += z = std::exp(z - most);
      for (std::size_t i = 0; i < n; ++i)
        expected[i] += logits[i] / sum / static_cast<double>(heads);
    }
    std::vector<float> value(setup().value_dim);
    for (std::size_t i = 0; i < n; ++i) {
      all.value(i, value);
      double square = 0;
      for (float x : value) square += double{x} * double{x};
      scores[i] = static_cast<float>((expected[i] + epsilon_) * std::sqrt(square));
    }
  }

 private:
  void expected_logits(const Candidates& all, const QueryMoments::Moments& moments,
                       std::span<double> logits) const {
    const std::size_t dim = setup().key_dim;
    const double scale = double{setup().logits.scale};
    const std::vector<float> mean(moments.mean.begin(), moments.mean.end());
    Matrix covariance(dim, dim);
    std::ranges::copy(moments.covariance, covariance.data());
    std::vector<float> key(dim);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all.key(i, key);
      double square = 0;
      for (std::size_t a = 0; a < dim; ++a)
        square += double{key[a]} * double{kernels::dot(covariance[a], key)};
      logits[i] = scale * double{kernels::dot(mean, key)} + scale * scale * square / 2;
    }
  }

  double epsilon_;
  std::size_t horizon_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<ExpectedAttention>(setup);
}

std::vector<Parameter> parameters() {
  using Kind = Parameter::Kind;
  std::vector<Parameter> all = adaptive_parameters("adaptive");
  all.push_back({"epsilon", Kind::real, "0.02", 0, 1, "", "added to the expected attention"});
  all.push_back({"horizon", Kind::integer, "512", 1, 65536, "",
                 "positions to come whose mean rotation turns the queries"});
  return all;
}

}  // namespace

const MethodInfo& expected_attention_method() {
  static const MethodInfo info = {
      .name = "expected-attention",
      .title = "the tokens that queries to come are expected to look at",
      .paper = "Devoto et al. 2025, Expected Attention (arXiv:2510.00636), section 3",
      .parameters = parameters(),
      .sink = 4,
      .window = 0,
      .step = 128,
      .needs = {.query_moments = true},
      .make = make,
  };
  return info;
}

}  // namespace ballast
