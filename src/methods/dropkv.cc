// DropKV: the tokens without which the answers to the last queries would change most. For query i,
// attention p and answer o_i, leaving out entry j moves the answer by p_ij / (1 - p_ij) (o_i -
// v_j); score_j is the sum of its squares.
#include <algorithm>

#include "ballast/selection.h"
#include "methods/adaptive.h"
#include "methods/registry.h"

namespace ballast {
namespace {

void add_changes(const QueryView& seen, std::span<double> sums) {
  constexpr float kLeast = 0.01f;  // of 1 - p
  for (std::size_t j = 0; j < sums.size(); ++j) {
    const float p = seen.attention[j];
    if (p == 0) continue;
    float square = 0;
    for (std::size_t c = 0; c < seen.answer.size(); ++c) {
      const float by = seen.values[j][c] - seen.answer[c];
      square += by * by;
    }
    const double odds = double{p} / double{std::max(1 - p, kLeast)};
    sums[j] += odds * odds * double{square};
  }
}

class DropKv : public SelectionSummary {
 public:
  explicit DropKv(const SummarySetup& setup)
      : SelectionSummary(setup, {.by_rule = setup.capacity}) {}

  void observe_recent(const Observed& observed) override {
    replace(ranks(), observed.held_attention());
  }

 protected:
  float rank(const Block& block, std::size_t i) override { return attention_of(block)[i]; }
};

std::unique_ptr<Summary> make(const SummarySetup& setup) { return std::make_unique<DropKv>(setup); }

std::vector<Parameter> parameters() {
  std::vector<Parameter> all = adaptive_parameters("adaptive");
  all.insert(all.begin(), {"observe", Parameter::Kind::integer, "32", 1, 65536, "",
                           "last tokens whose queries choose"});
  return all;
}

}  // namespace

const MethodInfo& dropkv_method() {
  static const MethodInfo info = {
      .name = "dropkv",
      .title = "the tokens without which the last answers would change most",
      .paper = "DropKV 2026 (openreview MqfNzH3TVH): the exact change of the answer",
      .parameters = parameters(),
      .step = 32,
      .needs = {.recent_queries = true, .recent_score = add_changes},
      .make = make,
  };
  return info;
}

}  // namespace ballast
