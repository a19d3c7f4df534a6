// The tokens with most attention from the latest query: "Top-K", a baseline of H2O, appendix C.5.
#include "ballast/selection.h"
#include "base/fail.h"
#include "methods/heavy.h"
#include "methods/registry.h"

namespace ballast {
namespace {

class TopK : public SelectionSummary {
 public:
  explicit TopK(const SummarySetup& setup)
      : SelectionSummary(setup, {.by_rule = ruled_capacity(setup)}) {}

  void observe_recent(const Observed& observed) override {
    replace(ranks(), observed.held_attention());
  }

 protected:
  void prepare(const Block& block) override {
    latest_ = block.recent_attention();
    require(latest_.size() == block.size(),
            "a block of {} tokens came with {} attention sums of the latest query", block.size(),
            latest_.size());
  }
  float rank(const Block&, std::size_t i) override { return latest_[i]; }

 private:
  std::span<const float> latest_;  ///< of the block
};

std::unique_ptr<Summary> make(const SummarySetup& setup) { return std::make_unique<TopK>(setup); }

Needs needs_of(const Policy& policy) {
  return {.attention_sums = has_heavy(policy), .recent_queries = true};
}

}  // namespace

const MethodInfo& topk_method() {
  static const MethodInfo info = {
      .name = "topk",
      .title = "the tokens with the largest attention from the latest query alone",
      .paper = "Zhang et al. 2023, H2O, appendix C.5 (baseline)",
      .parameters = {{"observe", Parameter::Kind::integer, "1", 1, 65536, "",
                      "latest tokens whose queries choose"},
                     heavy_parameter()},
      .window = 0,
      .needs = {.recent_queries = true},
      .needs_of = needs_of,
      .make = make,
  };
  return info;
}

}  // namespace ballast
