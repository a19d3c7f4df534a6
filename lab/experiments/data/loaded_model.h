// A model with its tokenizer and an engine.
#pragma once

#include <filesystem>

#include "ballast/engine/session.h"

namespace ballast {

/// For experiments, which move several sequences with one engine.
struct LoadedModel : TextModel {
  /// Throws Error as TextModel does.
  explicit LoadedModel(const std::filesystem::path& path) : TextModel(path), engine(model) {}

  Engine engine;
};

}  // namespace ballast
