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
      : SelectionSummary(setup, {.by_rule = ruled_capacity(setup)}),
        heavy_(has_heavy(setup.policy)) {}

  void observe(std::span<const float> attention_sum) override {
    if (heavy_) {
      SelectionSummary::observe(attention_sum);
    } else {
      replace(ranks(), attention_sum);
    }
  }
  void observe_last(std::span<const float> attention_sum) override {
    replace(ranks(), attention_sum);
  }

 protected:
  void prepare(const Block& block) override {
    require(latest(block).size() == block.size(),
            "a block of {} tokens came with {} attention sums of the latest query", block.size(),
            latest(block).size());
  }
  float rank(const Block& block, std::size_t i) override { return latest(block)[i]; }

 private:
  std::span<const float> latest(const Block& block) const {
    return heavy_ ? block.recent_attention_sum : block.attention_sum;
  }

  bool heavy_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) { return std::make_unique<TopK>(setup); }

AttentionStats attention_stats_of(const Policy& policy) {
  return {.kind = has_heavy(policy) ? AttentionStats::Kind::both : AttentionStats::Kind::recent};
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
      .attention_stats = {.kind = AttentionStats::Kind::recent},
      .attention_stats_of = attention_stats_of,
      .make = make,
  };
  return info;
}

}  // namespace ballast
