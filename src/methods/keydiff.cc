// KeyDiff: the tokens whose keys are least like the mean direction of all keys. Park et al. 2025
// (arXiv:2504.15364), section 3: score_j = -cos(k_j, mean of k / |k|).
#include <algorithm>
#include <cmath>

#include "methods/adaptive.h"
#include "methods/registry.h"
#include "methods/scored.h"

namespace ballast {
namespace {

class KeyDiff : public ScoredSummary {
 public:
  explicit KeyDiff(const SummarySetup& setup) : ScoredSummary(setup, {}) {}

 protected:
  void score(const Candidates& all, std::span<float> scores) override {
    const std::size_t dim = setup().key_dim;
    std::vector<float> key(dim);
    std::vector<double> anchor(dim, 0.0), lengths(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all.key(i, key);
      lengths[i] = length(key);
      if (lengths[i] == 0) continue;
      for (std::size_t c = 0; c < dim; ++c) anchor[c] += double{key[c]} / lengths[i];
    }
    const double most = length(anchor);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all.key(i, key);
      double dot = 0;
      for (std::size_t c = 0; c < dim; ++c) dot += anchor[c] * double{key[c]};
      const double cosine = lengths[i] == 0 || most == 0 ? 0 : dot / (lengths[i] * most);
      scores[i] = static_cast<float>(-cosine);
    }
  }

 private:
  template <typename T>
  static double length(const std::vector<T>& row) {
    double square = 0;
    for (T x : row) square += double{x} * double{x};
    return std::sqrt(square);
  }
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<KeyDiff>(setup);
}

}  // namespace

const MethodInfo& keydiff_method() {
  static const MethodInfo info = {
      .name = "keydiff",
      .title = "the tokens whose keys are least like the mean direction of the keys",
      .paper = "Park et al. 2025, KeyDiff (arXiv:2504.15364), section 3",
      .parameters = adaptive_parameters("uniform"),
      .window = 0,
      .step = 128,
      .needs = {},
      .make = make,
  };
  return info;
}

}  // namespace ballast
