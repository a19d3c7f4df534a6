// What requests may take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ballast/engine/generate.h"
#include "ballast/engine/guard.h"
#include "ballast/engine/vision.h"
#include "serve/library.h"
#include "serve/texts/sessions.h"

namespace ballast::serve {

/// Of numbers of tokens in requests: more than any text has.
constexpr std::uint64_t kMostTokens = 1 << 30;

/// What a request may take, and what it means where it does not say.
struct RequestLimits {
  std::string model;                    ///< its name
  std::size_t choices = 16;             ///< n at most
  std::size_t max_tokens = 2048;        ///< of an answer, unless the request says
  CacheOptions cache;                   ///< unless the request says
  std::string sized_method = "replay";  ///< of a cache with bytes and no method
  std::size_t token_bytes = 1;          ///< of a token in the exact cache
  std::size_t positions = 1 << 20;      ///< of the model
  bool endless = false;                 ///< its streams may go on beyond them
  const VisionModel* vision = nullptr;  ///< null: pictures are refused
  ServedLibrary* library = nullptr;     ///< that "library" is; null: none
  const Sessions* sessions = nullptr;   ///< that requests name; null: none
  const Guard* guard = nullptr;         ///< that chooses sizes; null: none
  /// Of requests that do not say: where the model's files say nothing, temperature 0.7.
  SamplingOptions sampling = {.temperature = 0.7f};
};

}  // namespace ballast::serve
