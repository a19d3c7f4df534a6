// What a model's entries are like, for packing them: gathered while texts are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ballast/engine/calibration.h"
#include "ballast/engine/model.h"
#include "ballast/pack.h"
#include "model/covariance.h"

namespace ballast {

class PackMoments {
 public:
  /// `scores`: what tokens are to be scored like from their rows; null: they are not. Throws Error
  /// if the model's layers are divided among processes.
  explicit PackMoments(const Model& model, std::shared_ptr<const Calibration> scores = nullptr);

  /// The texts that follow teach the transform, or, `held_out`, what the steps of presets are found
  /// on: text that the transform has not seen. It teaches at the end.
  void hold_out(bool held_out) { holds_out_ = held_out; }
  /// What PrefillOptions::on_attention is shown of a text that begins with this prefill. Tokens 0
  /// to 3 are left out: packing stores them as they are.
  void see(const AttentionStep& step);

  /// The transform, in as many directions as PackMoments::directions() says, and the steps of 1/16,
  /// 1/32 and 1/64.
  PackBasis fit();

 private:
  struct Group {
    PackGroup pack;
    Covariance moments{0};            ///< of x and the log scores of a token
    Matrix rows;                      ///< these, of the chunk that is being read
    std::vector<std::uint16_t> held;  ///< rows of bf16
  };

  std::size_t directions(const Group& group) const;
  void find_metric(PackGroup& group, const Covariance& moments) const;

  std::size_t width(const Group& group) const {
    return group.pack.layers.size() * basis_.layer_width();
  }

  const Model model_;
  std::shared_ptr<const Calibration> scores_;
  CacheShape shape_;
  bool holds_out_ = false;
  PackBasis basis_;
  std::vector<Group> groups_;
  std::vector<std::size_t> group_of_;         ///< of each layer
  std::vector<std::vector<double>> queries_;  ///< of each layer and KV head: sums of q qᵀ
  std::vector<std::size_t> query_rows_;       ///< of each layer: how many are in each
};

}  // namespace ballast
