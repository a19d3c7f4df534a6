// Scores of cache entries that cost nothing: a linear function of what enters a layer, fitted once
// a model to the scores of a replay pass. The method `calibrated` divides its budget by them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

class Model;
class Tokenizer;
struct PackBasis;

/// The functions of all layers. Never changes once made.
class Calibration {
 public:
  /// One layer. A token's features: the layer's input after its norm, then log |key| and log
  /// |value| of every KV head.
  struct Layer {
    Matrix weights;              ///< KV heads × features
    std::vector<float> offsets;  ///< of each KV head
  };

  Calibration(std::string key, std::vector<Layer> layers)
      : key_(std::move(key)), layers_(std::move(layers)) {}

  /// exp(offset + weights · features) of every token and KV head. inputs: tokens × width, keys and
  /// values: tokens × (KV heads · dimension), out: tokens × KV heads.
  void score(std::size_t layer, ConstMatrix inputs, ConstMatrix keys, ConstMatrix values,
             MutableMatrix out) const;

  /// The functions of so many layers, from `first` on, counted among those that attend.
  std::shared_ptr<const Calibration> part(std::size_t first, std::size_t count) const;

  /// calibration_key() of its model.
  const std::string& key() const { return key_; }
  /// Differs where a score differs.
  std::uint64_t hash() const;

  /// Writes the file, whole or not at all. Throws Error if it cannot be written.
  void save(const std::filesystem::path& path) const;
  /// Throws Error, which begins with `name`, if the bytes are no calibration for this model.
  static Calibration parse(std::span<const std::byte> bytes, const std::string& name,
                           const Model& model);

 private:
  std::string key_;
  std::vector<Layer> layers_;
};

/// The same for all quantizations of a model, another for others: its family, its shape and a hash
/// of the norms before attention.
std::string calibration_key(const Model& model);

/// Where `ballast calibrate` keeps the calibration of a model and Model looks for it: the folder
/// ballast/scores of the user's caches. Empty: there is no such folder.
std::filesystem::path calibration_path(const Model& model);

/// The calibration of a model: beside its file (model.gguf.scores; in a folder ballast.scores), at
/// calibration_path(), or one that is part of this library. Null: there is none. Throws Error if a
/// file is damaged.
std::shared_ptr<const Calibration> find_calibration(const Model& model);

struct CalibrateOptions {
  /// What is read, in pieces; empty: texts that are part of this library, 50,000 tokens of many
  /// languages and kinds.
  std::string_view text;
  bool scores = true;   ///< reads the texts a second time: the scores are those of `replay`
  bool packing = true;  ///< from the same reading
  /// Called with the part done, from 0 to 1; false stops.
  std::function<bool(double)> progress;
};

struct Calibrated {
  std::shared_ptr<const Calibration> scores;
  std::shared_ptr<const PackBasis> packing;
};

/// Fits what is asked for; what is not, and all when it was stopped, is null. Throws Error if the
/// text is too short.
Calibrated calibrate(const Model& model, const Tokenizer& tokenizer,
                     const CalibrateOptions& options = {});

}  // namespace ballast
