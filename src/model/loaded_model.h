// A model with its tokenizer, ready to run.
#pragma once

#include <cstddef>
#include <string>

#include "ballast/engine/generate.h"
#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// A model with its tokenizer, ready to run.
struct LoadedModel {
  /// Throws Error if either cannot be read.
  explicit LoadedModel(const std::string& path);

  /// Bytes of this process besides pages of the model's files, plus an allowance for a run.
  std::size_t program_memory() const;

  Model model;
  Tokenizer tokenizer;
  Engine engine;
};

/// How this model is asked to read a text again. `chat`: the text stands in the model's chat
/// template, if it has one.
ReplayWording replay_wording_of(const LoadedModel& m, bool chat);
}  // namespace ballast
