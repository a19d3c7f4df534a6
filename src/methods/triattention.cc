// TriAttention: tokens at distances that the model's queries prefer. Before rotary positions
// queries lie near a centre, so the logit of a key is nearly a trigonometric series of its
// distance. Mao et al. 2026 (arXiv:2604.04921), with the centres of the text's own queries in place
// of a calibration.
//
//   s_j = mean over δ = 1, 2, 4, …, 65536 of <R_{t+δ} E[q], k_j> + Σ_f (1 - r_f) |q_f| |k_jf|
//   r_f = |E[q_f]| / |q_f|; |q_f|: root mean square of pair f; t: the last token
//   score_j = max over the query heads of s_j about its mean, in standard deviations
#include <algorithm>
#include <cmath>

#include "methods/query_moments.h"
#include "methods/registry.h"
#include "methods/scored.h"

namespace ballast {
namespace {

constexpr int kOffsets = 17;  // of powers of 2

class TriAttention : public ScoredSummary {
 public:
  explicit TriAttention(const SummarySetup& setup) : ScoredSummary(setup, {}) {}

 protected:
  void score(const Candidates& all, std::span<float> scores) override {
    const std::size_t n = all.size();
    std::ranges::fill(scores, 0.0f);
    const QueryMoments* known = all.block.observed->query_moments();
    if (n == 0 || known == nullptr) return;
    Matrix keys(n, setup().key_dim);
    for (std::size_t i = 0; i < n; ++i) all.key(i, keys[i]);
    std::vector<double> series(n), best(n, -INFINITY);
    for (std::size_t g = 0; g < known->query_heads(); ++g) {
      add_up(*known, g, all.block.now - 1, keys, series);
      double mean = 0, square = 0;
      for (double s : series) mean += s / static_cast<double>(n);
      for (double s : series) square += (s - mean) * (s - mean) / static_cast<double>(n);
      const double deviation = square > 0 ? std::sqrt(square) : 1;
      for (std::size_t i = 0; i < n; ++i)
        best[i] = std::max(best[i], (series[i] - mean) / deviation);
    }
    for (std::size_t i = 0; i < n; ++i) {
      scores[i] = std::isfinite(best[i]) ? static_cast<float>(best[i]) : 0.0f;
    }
  }

 private:
  static void add_up(const QueryMoments& known, std::size_t head, Position last, const Matrix& keys,
                     std::span<double> series) {
    const Rotary& rotary = known.rotary();
    const std::size_t pairs = rotary.frequencies.size(), dim = keys.cols();
    const QueryMoments::Elements q = known.elements(head);
    std::vector<double> centre = q.mean, spread(pairs);
    const auto first = [&](std::size_t f) { return rotary.pairs ? 2 * f : f; };
    const auto second = [&](std::size_t f) { return rotary.pairs ? 2 * f + 1 : f + pairs; };
    for (std::size_t f = 0; f < pairs; ++f) {
      double cosine = 0, sine = 0;
      for (int k = 0; k < kOffsets; ++k) {
        const double angle = double{rotary.frequencies[f]} * (double(last) + double(1 << k));
        cosine += double{rotary.magnitude} * std::cos(angle) / kOffsets;
        sine += double{rotary.magnitude} * std::sin(angle) / kOffsets;
      }
      const double x = q.mean[first(f)], y = q.mean[second(f)];
      centre[first(f)] = x * cosine - y * sine;
      centre[second(f)] = x * sine + y * cosine;
      const double length = std::sqrt(q.square[first(f)] + q.square[second(f)]);
      spread[f] = double{rotary.magnitude} * (length - std::min(length, std::hypot(x, y)));
    }
    for (std::size_t i = 0; i < keys.rows(); ++i) {
      double sum = 0;
      for (std::size_t c = 0; c < dim; ++c) sum += centre[c] * double{keys[i][c]};
      for (std::size_t f = 0; f < pairs; ++f) {
        sum += spread[f] * std::hypot(double{keys[i][first(f)]}, double{keys[i][second(f)]});
      }
      series[i] = sum;
    }
  }
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<TriAttention>(setup);
}

}  // namespace

const MethodInfo& triattention_method() {
  static const MethodInfo info = {
      .name = "triattention",
      .title = "tokens at distances that the queries prefer, by their centres before rotation",
      .paper = "Mao et al. 2026, TriAttention (arXiv:2604.04921)",
      .parameters = {},
      .sink = 4,
      .window = 0,
      .step = 128,
      .keeps_generated = false,
      .needs = {.query_moments = true},
      .make = make,
  };
  return info;
}

}  // namespace ballast
