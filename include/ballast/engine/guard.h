// The smallest cache of a text that still answers as the whole one does.
#pragma once

#include <string>
#include <vector>

#include "ballast/engine/gauge.h"
#include "ballast/engine/model.h"

namespace ballast {

/// A size, and what its cache costs on a text.
struct GuardTry {
  std::string bytes;  ///< "1/16"
  GaugeReading gauge;
};

/// What was tried for a text, the smallest first; the last one is taken if it is within the bound,
/// else the exact cache.
struct Guarded {
  std::vector<GuardTry> tried;
  bool exact = false;
  /// What is taken: "1/8", "exact".
  std::string bytes() const { return exact ? "exact" : tried.back().bytes; }
};

/// Chooses among 1/16, 1/8, 1/4, 1/2 and the exact cache, with the model's own method
/// (Model::policy_for()). A text is read once, with its exact cache; while a size is tried there is
/// a copy of that beside it.
class Guard {
 public:
  /// Nats a token (GaugeReading::kl).
  static constexpr double kBound = 0.01;

  explicit Guard(const Model& model, double bound = kBound) : model_(model), bound_(bound) {}

  /// What to read a text with whose cache will be chosen: exact, with the scores that the method
  /// needs. Throws Error where a cache cannot be gauged: see Gauge::why_not().
  CacheOptions reading(CacheOptions options) const;

  /// Ends the prompt of a sequence that was read so, which becomes the one that is chosen. Texts
  /// that the gauge does not measure stay exact. Returns false, with the prompt not ended, if the
  /// replay pass was stopped.
  bool finish(Engine& engine, Sequence& sequence, const ReplayOptions& options, Guarded& out) const;

 private:
  const Model& model_;
  double bound_;
};

}  // namespace ballast
