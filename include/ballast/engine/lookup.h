// What an answer rests on: the tokens of a text that a model looks up while it makes the answer.
//
// Some heads of a model find where its last words have stood before, and look at what followed
// there. An answer is copied through them. The attention of the other heads says little.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/cache.h"
#include "ballast/engine/model.h"

namespace ballast {

/// A query head that looks things up, and how much of its attention does, from 0 to 1.
struct LookupHead {
  std::size_t layer = 0;
  std::size_t head = 0;
  float share = 0;
};

/// The heads of a model that look things up, by layer; at least one. The model reads 128 random
/// tokens, the second half like the first, which a head that looks things up cannot miss; any
/// language serves. Takes as long as reading those; uses the engine. Throws Error as Engine does.
std::vector<LookupHead> find_lookup_heads(Engine& engine);

/// Adds up what those heads look at in a text while an answer is made.
class Lookup {
 public:
  /// `tokens`: of the text, the first that the sequence has read.
  Lookup(std::vector<LookupHead> heads, std::size_t tokens);

  /// For on_attention of PrefillOptions and GenerateOptions: row `row` of the step is of the last
  /// token that `cache` has read in this layer.
  void add(const Cache& cache, const AttentionStep& step, std::size_t row);

  /// Of each token of the text, the attention that all entries kept of it received: the mean over
  /// heads and steps. The sum is at most 1.
  std::vector<float> attention() const;

 private:
  std::vector<LookupHead> heads_;
  std::vector<float> sums_;
  double weight_ = 0;  ///< of what was added
};

}  // namespace ballast
