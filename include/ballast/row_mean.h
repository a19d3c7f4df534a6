// What rows of few bits are relative to: the mean of a head's keys before rotation, or of its
// values.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ballast/rotary.h"
#include "ballast/storage.h"

namespace ballast {

class Turns;

/// A vector μ and a rotation: the row of position n is stored as x_n - R_n μ, where R_n turns μ as
/// rotary embedding turns the key of token n. Models with a bias in the key projection (Qwen2) have
/// keys that are mostly R_n times one vector: without it, codes of few bits hold nothing else.
class RowMean {
 public:
  /// Throws Error if an element is not finite or the rotation is of more elements than the mean.
  /// `rotary` without frequencies: R_n is the identity, and μ the plain mean.
  explicit RowMean(std::vector<float> mean, const Rotary& rotary = {});
  /// Of keys with positions, each turned back by its position. In float64 sums, in their order.
  static RowMean of_keys(const RowsView& keys, const Rotary& rotary);
  /// Of values.
  static RowMean of_values(const RowsView& values);
  /// The same for values: rows that attention averages, whose errors must average out.
  static RowMean for_values(std::vector<float> mean);

  std::span<const float> mean() const { return mean_; }
  std::size_t bytes() const { return mean_.size() * sizeof(float); }
  /// Whether it is for values.
  bool averaged() const { return averaged_; }
  /// Null where R_n is the identity.
  const Turns* turns() const { return turns_.get(); }
  /// out = R_n μ; n from 0, ignored where nothing turns.
  void at(Position n, float* out) const;
  bool operator==(const RowMean& other) const;

 private:
  std::vector<float> mean_;
  std::shared_ptr<const Turns> turns_;
  bool averaged_ = false;
};

}  // namespace ballast
