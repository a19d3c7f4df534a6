// A cache method outside Ballast's tree. key-norm keeps the tokens whose keys are shortest: in many
// models those receive most attention, and no query needs to be watched.
// Devoto et al. 2024, "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression".
#include "key_norm.h"

#include <ballast/method.h>
#include <ballast/selection.h>

#include <memory>
#include <vector>

namespace {

class KeyNorm : public ballast::SelectionSummary {
 public:
  explicit KeyNorm(const ballast::SummarySetup& setup)
      : SelectionSummary(setup, {.by_rule = setup.capacity}),
        sign_(setup.policy.choice("keep") == "short" ? -1.0f : 1.0f),
        key_(setup.key_dim) {}

  std::size_t bytes() const override {
    return SelectionSummary::bytes() + key_.size() * sizeof(float);
  }

 protected:
  float rank(const ballast::Block& block, std::size_t i) override {
    block.keys.decode(i, key_);
    float sum = 0;
    for (float x : key_) sum += x * x;
    return sign_ * sum;
  }

 private:
  float sign_;
  std::vector<float> key_;  ///< scratch of rank()
};

}  // namespace

void register_key_norm() {
  ballast::register_method({
      .name = "key-norm",
      .title = "the tokens with the shortest keys",
      .paper = "Devoto et al. 2024 (arXiv:2406.11430)",
      .parameters = {{"keep", ballast::Parameter::Kind::choice, "short", 0, 0, "short|long",
                      "long: the longest keys instead, to see what short ones are worth"}},
      .sink = 4,
      .needs = {},
      .make = [](const ballast::SummarySetup& setup) -> std::unique_ptr<ballast::Summary> {
        return std::make_unique<KeyNorm>(setup);
      },
  });
}
